// Package config handles the configuration of a plugin. One Go struct with tags
// is the only declaration. The schema, the defaults, the strict decoding and
// the reference are derived from it.
//
//	type Config struct {
//		Socket  string        `berth:"socket" default:"unix:///run/engine.sock" doc:"API socket."`
//		Pull    string        `berth:"pull" default:"missing" enum:"missing,always,never" doc:"When to pull."`
//		Timeout time.Duration `berth:"timeout" default:"2m" doc:"Longest wait for one pull."`
//		Token   string        `berth:"token" secret:"true" doc:"Of the registry."`
//		Mounts  []Mount       `berth:"mount" doc:"A bind mount; may be repeated."`
//	}
//
// A plugin in another language writes the same [Schema] itself, as JSON, and
// reports a problem with a path such as "mount[1].source".
//
// This package must not know HCL, expressions, files or lines. They belong to
// the host (cmd/berth/internal/config), which evaluates on the plugin's behalf
// and turns a path into a place in the user's file. This package depends only on
// the standard library.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// Limits of a schema that [Schema.Check] accepts. They limit the work that a
// plugin can cause in the host, and are far above any real configuration.
const (
	maxDepth  = 16  // blocks in blocks or lists in lists
	maxFields = 512 // of one block
)

// Schema describes the configuration of a plugin. It is sent in Describe as
// JSON, so it contains only values that JSON can express. The zero value is a
// plugin without configuration.
type Schema struct {
	Fields []Field `json:"fields,omitempty"`
}

// Field is one attribute or block of a configuration.
type Field struct {
	// Name is the field's name: lower case letters, digits and underscores,
	// beginning with a letter.
	Name string `json:"name"`
	Type Type   `json:"type"`
	// Doc is one or more sentences for the reference and for messages.
	Doc string `json:"doc,omitempty"`
	// Default is the value of an absent attribute, as JSON. Empty: no default.
	// Blocks have none.
	Default json.RawMessage `json:"default,omitempty"`
	// Required fields must be given; they have no default.
	Required bool `json:"required,omitempty"`
	// Secret values are kept out of every file, log and argument list.
	Secret bool `json:"secret,omitempty"`
	// Enum lists the allowed strings; empty: any. It also applies to the
	// elements of a list or map of strings.
	Enum []string `json:"enum,omitempty"`
	// Fields are the fields of a block; empty for attributes.
	Fields []Field `json:"fields,omitempty"`

	index []int // of the value in the struct that the schema was read from, for reflect.Value.FieldByIndex
}

// Type is the type of a field, written as in HCL:
//
//	string  bool  int  float
//	duration              a string such as "90s" or "1h30m"
//	any                   any JSON value
//	list(T)  map(T)       T is one of the types above, or a list or map of them
//	block                 a nested block, at most once; a JSON object
//	list(block)           a block that may be repeated; a JSON array of objects
//	map(block)            the same with one label; a JSON object of objects
type Type string

// The types without parameters.
const (
	String   Type = "string"
	Bool     Type = "bool"
	Int      Type = "int" // 64 bits; the Go field may be narrower
	Float    Type = "float"
	Duration Type = "duration"
	Any      Type = "any"
	Block    Type = "block"
)

// The types of repeated blocks.
const (
	BlockList Type = "list(block)"
	BlockMap  Type = "map(block)"
)

// ListOf is the type of a list of elem.
func ListOf(elem Type) Type { return "list(" + elem + ")" }

// MapOf is the type of a map from strings to elem.
func MapOf(elem Type) Type { return "map(" + elem + ")" }

// List reports whether t is list(T), and T.
func (t Type) List() (elem Type, ok bool) { return t.inner("list(") }

// Map reports whether t is map(T), and T.
func (t Type) Map() (elem Type, ok bool) { return t.inner("map(") }

// IsBlock reports whether t is one of the three block types.
func (t Type) IsBlock() bool { return t == Block || t == BlockList || t == BlockMap }

func (t Type) inner(prefix string) (Type, bool) {
	rest, ok := strings.CutPrefix(string(t), prefix)
	if !ok {
		return "", false
	}
	rest, ok = strings.CutSuffix(rest, ")")
	return Type(rest), ok
}

// valid reports whether t is a type of an attribute at the given depth.
func (t Type) valid(depth int) bool {
	if depth > maxDepth {
		return false
	}
	switch t {
	case String, Bool, Int, Float, Duration, Any:
		return true
	default:
	}
	if e, ok := t.List(); ok {
		return e.valid(depth + 1)
	}
	if e, ok := t.Map(); ok {
		return e.valid(depth + 1)
	}
	return false
}

// leaf returns the innermost element type of t.
func (t Type) leaf() Type {
	for {
		e, ok := t.List()
		if !ok {
			e, ok = t.Map()
		}
		if !ok {
			return t
		}
		t = e
	}
}

// Field returns the field with that name, or nil.
func (s Schema) Field(name string) *Field {
	for i := range s.Fields {
		if s.Fields[i].Name == name {
			return &s.Fields[i]
		}
	}
	return nil
}

// Schema returns the schema of a block's body.
func (f Field) Schema() Schema { return Schema{Fields: f.Fields} }

var fieldName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// Check reports everything that is wrong with a schema from outside this
// package: names, types, defaults that do not fit, duplicate fields. A schema
// made by [SchemaOf] has passed it.
func (s Schema) Check() error {
	return errors.Join(s.check("", 0)...)
}

func (s Schema) check(at Path, depth int) (errs []error) {
	if depth > maxDepth {
		return []error{fmt.Errorf("schema: %s: more than %d blocks in blocks", at, maxDepth)}
	}
	if len(s.Fields) > maxFields {
		return []error{fmt.Errorf("schema: %s: %d fields in one block, at most %d are allowed", at, len(s.Fields), maxFields)}
	}
	seen := map[string]bool{}
	for _, f := range s.Fields {
		p := at.Attr(f.Name)
		if !fieldName.MatchString(f.Name) {
			errs = append(errs, fmt.Errorf("schema: name %q: write lower case letters, digits and underscores, a letter first", string(p)))
		}
		if seen[f.Name] {
			errs = append(errs, fmt.Errorf("schema: %s is declared twice", p))
		}
		seen[f.Name] = true
		errs = append(errs, f.check(p, depth)...)
	}
	return errs
}

func (f Field) check(p Path, depth int) (errs []error) {
	bad := func(format string, a ...any) {
		errs = append(errs, fmt.Errorf("schema: %s: "+format, append([]any{p}, a...)...))
	}
	if f.Type.IsBlock() {
		if len(f.Default) > 0 || len(f.Enum) > 0 || f.Secret {
			bad("a block has no default, enum or secret: give them to its fields")
		}
		return append(errs, f.Schema().check(p, depth+1)...)
	}
	if !f.Type.valid(0) {
		bad("unknown type %q", string(f.Type))
		return errs
	}
	if len(f.Fields) > 0 {
		bad("only a block has fields, this is %s", f.Type)
	}
	if len(f.Enum) > 0 && f.Type.leaf() != String {
		bad("enum is for strings, this is %s", f.Type)
	}
	if len(f.Default) == 0 {
		return errs
	}
	if f.Required {
		bad("a required field has no default")
	}
	for _, problem := range f.read(p, f.Default, reflect.Value{}) {
		bad("default does not fit: %s: %s", problem.Summary, problem.Detail)
	}
	return errs
}
