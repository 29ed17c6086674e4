package source

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	pluginconfig "github.com/berth-eval/berth/plugins/config"
)

// Field is a field of a block with what only an experiment knows of it.
type Field struct {
	pluginconfig.Field

	Ref     string // type of the block that it refers to
	Body    string // of a block with its own body kind: one of those below
	PerRun  bool   // the same for all cells
	Secrets bool   // may hold secrets
	Many    bool   // a free block that may be repeated
	Nested  []Field
}

// The kinds of bodies.
const (
	BodyConfig = "config" // a plugin's schema describes it
	BodyFree   = "free"   // any attributes, or an attribute with any value
	BodyAxes   = "axes"   // any attributes, beside the nested blocks
)

// Fields reads the tags of a block. A fault is a bug in Berth.
func Fields(t reflect.Type) []Field {
	s, err := pluginconfig.SchemaOf(reflect.New(t).Interface())
	if err != nil {
		panic(fmt.Sprintf("configuration block %s: %v", t, err))
	}
	return withTags(t, s.Fields)
}

func withTags(t reflect.Type, base []pluginconfig.Field) []Field {
	fs := make([]Field, len(base))
	for i, sf := range tagged(t) {
		f := Field{
			Field: base[i], Ref: sf.Tag.Get("ref"), Body: sf.Tag.Get("body"), PerRun: sf.Tag.Get("per") == "run",
			Secrets: sf.Tag.Get("secrets") == "true" || base[i].Secret,
		}
		f.Many = f.Body != "" && f.Type != pluginconfig.Any
		if f.Type.IsBlock() {
			inner := sf.Type
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
				inner = inner.Elem()
			}
			f.Nested = withTags(inner, f.Fields)
		}
		fs[i] = f
	}
	return fs
}

// tagged are the fields of a struct that are part of its schema, with those of
// embedded structs.
func tagged(t reflect.Type) (fs []reflect.StructField) {
	for sf := range t.Fields() {
		switch tag := sf.Tag.Get("berth"); {
		case tag == "-":
		case tag == "" && sf.Anonymous:
			fs = append(fs, tagged(sf.Type)...)
		default:
			fs = append(fs, sf)
		}
	}
	return fs
}

// IsBlock says whether the field is written as a block.
func (f Field) IsBlock() bool { return f.Body != "" || f.Type.IsBlock() }

// IsAttribute says whether the field may be written as an attribute.
func (f Field) IsAttribute() bool { return !f.IsBlock() || f.Body == BodyFree && !f.Many }

// TypeName is the type for people.
func (f Field) TypeName() pluginconfig.Type {
	if f.Ref == "" {
		return f.Type
	}
	return pluginconfig.Type(strings.Replace(string(f.Type), "string", f.Ref, 1))
}

// Of are the fields of a plugin's schema.
func Of(in []pluginconfig.Field) []Field {
	var fs []Field
	for _, f := range in {
		fs = append(fs, Field{Field: f, Secrets: true, Nested: Of(f.Fields)})
	}
	return fs
}

// AnyOf describes a body as it is, when there is no schema to ask.
func AnyOf(b *hclsyntax.Body) []Field {
	var fs []Field
	for _, a := range InOrder(b.Attributes) {
		fs = append(fs, Field{Field: pluginconfig.Field{Name: a.Name, Type: pluginconfig.Any}, Secrets: true})
	}
	for _, inner := range b.Blocks {
		if !slices.ContainsFunc(fs, func(f Field) bool { return f.Name == inner.Type }) {
			sub := AnyOf(inner.Body)
			f := pluginconfig.Field{Name: inner.Type, Type: pluginconfig.BlockList, Fields: SchemaOf(sub).Fields}
			fs = append(fs, Field{Field: f, Nested: sub})
		}
	}
	return fs
}

// SchemaOf is what is checked of values: everything but bodies of their own kind.
func SchemaOf(fs []Field) pluginconfig.Schema {
	var s pluginconfig.Schema
	for _, f := range fs {
		if f.Body == BodyConfig || f.Body == BodyAxes || f.Many {
			continue
		}
		s.Fields = append(s.Fields, f.Field)
	}
	return s
}

// Locate makes a diagnostic of a problem with a block, at the place in the file
// that its path leads to: the attribute, the element of a list, the entry of a
// map, the n-th block; or else the header of the nearest block.
func Locate(b *hclsyntax.Block, p pluginconfig.Problem) *hcl.Diagnostic {
	steps, _ := p.Path.Steps() // what can be read of it leads near
	subject := locateIn(b, steps)
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: p.Summary, Detail: p.Detail, Subject: &subject}
}

func locateIn(b *hclsyntax.Block, steps []pluginconfig.Step) hcl.Range {
	if len(steps) == 0 || steps[0].Kind != pluginconfig.StepName {
		return b.DefRange()
	}
	name, rest := steps[0].Name, steps[1:]
	if a := b.Body.Attributes[name]; a != nil {
		return locateExpr(a.Expr, rest)
	}
	nth, label := 0, ""
	if len(rest) > 0 && rest[0].Kind != pluginconfig.StepName {
		nth, label, rest = rest[0].Index, rest[0].Name, rest[1:]
	}
	for _, inner := range b.Body.Blocks {
		switch {
		case inner.Type != name:
		case label != "" && (len(inner.Labels) == 0 || inner.Labels[0] != label):
		case nth > 0:
			nth--
		default:
			return locateIn(inner, rest)
		}
	}
	return b.DefRange()
}

func locateExpr(e hclsyntax.Expression, steps []pluginconfig.Step) hcl.Range {
	if len(steps) == 0 {
		return e.Range()
	}
	switch e := e.(type) {
	case *hclsyntax.TupleConsExpr:
		if i := steps[0].Index; steps[0].Kind == pluginconfig.StepIndex && i < len(e.Exprs) {
			return locateExpr(e.Exprs[i], steps[1:])
		}
	case *hclsyntax.ObjectConsExpr:
		for _, item := range e.Items {
			key, diags := item.KeyExpr.Value(nil)
			if diags.HasErrors() || !key.IsKnown() || key.IsNull() || key.Type() != cty.String {
				continue
			}
			if steps[0].Kind != pluginconfig.StepIndex && key.AsString() == steps[0].Name {
				return locateExpr(item.ValueExpr, steps[1:])
			}
		}
	}
	return e.Range()
}
