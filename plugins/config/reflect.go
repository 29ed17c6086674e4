package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	typeDuration = reflect.TypeFor[time.Duration]()
	typeRaw      = reflect.TypeFor[json.RawMessage]()
)

// member is a field of the schema and the place of its value in the struct.
type member struct {
	Field
	index   []int    // for reflect.Value.FieldByIndex
	members []member // of a block
}

// SchemaOf reads the schema of a configuration from the tags of the struct that
// v is or points to:
//
//	berth:"name"       the name; berth:"-" leaves the field out; every exported field needs one of them
//	doc:"..."          what it is for
//	default:"..."      as it would be written: text for a string or duration, JSON for anything else
//	enum:"a,b"         the strings allowed
//	required:"true"    must be given
//	secret:"true"      kept out of files and logs
//
// Strings, bools, integers, floats, [time.Duration], [json.RawMessage] and any
// (both: any JSON value), slices, maps with string keys and pointers to these
// (nil when absent) are attributes. Structs and pointers to structs are nested
// blocks, slices of structs repeated blocks, maps of structs labeled blocks;
// the fields of embedded structs belong to the outer struct. An error is a bug
// in the plugin.
func SchemaOf(v any) (Schema, error) {
	k := knownOf(v)
	// The caller may change the result, so it shares nothing.
	return Schema{Fields: fieldsOf(k.members)}, k.err
}

// known is the schema of a struct that was read before.
type known struct {
	members []member
	schema  Schema // shared: must not be changed
	err     error
}

var structs sync.Map // reflect.Type → known: a host decodes the same struct for every cell

func knownOf(v any) known {
	t := reflect.TypeOf(v)
	if k, ok := structs.Load(t); ok {
		if read, ok := k.(known); ok {
			return read
		}
	}
	var k known
	if k.members, k.err = membersOf(v); k.err == nil {
		k.schema = Schema{Fields: fieldsOf(k.members)}
		k.err = k.schema.Check()
	} else {
		k.members = nil
	}
	structs.Store(t, k)
	return k
}

func fieldsOf(ms []member) []Field {
	var fs []Field
	for _, m := range ms {
		m.Fields, m.Default, m.Enum = fieldsOf(m.members), slices.Clone(m.Default), slices.Clone(m.Enum)
		fs = append(fs, m.Field)
	}
	return fs
}

func membersOf(v any) ([]member, error) {
	t := reflect.TypeOf(v)
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("configuration is a struct or a pointer to one, got %T", v)
	}
	return structMembers(t, nil, nil)
}

// structMembers reads the fields of t. above are the structs that t is nested
// in. index is where t is embedded.
func structMembers(t reflect.Type, above []reflect.Type, index []int) (ms []member, err error) {
	if slices.Contains(above, t) {
		return nil, fmt.Errorf("%s contains itself: a schema has an end", t)
	}
	above = append(slices.Clip(above), t)
	for i := range t.NumField() {
		sf := t.Field(i)
		at := append(slices.Clip(index), i)
		tag := sf.Tag.Get("berth")
		switch {
		case tag == "-", !sf.IsExported() && !sf.Anonymous:
			continue
		case sf.Anonymous && tag == "" && sf.Type.Kind() == reflect.Struct:
			sub, subErr := structMembers(sf.Type, above, at)
			ms, err = append(ms, sub...), errors.Join(err, subErr)
			continue
		case tag == "" || !sf.IsExported():
			err = errors.Join(err, fmt.Errorf("%s.%s has no name: write a tag berth:\"name\", or berth:\"-\" to leave it out", t, sf.Name))
			continue
		}
		m, mErr := newMember(sf, tag, above)
		m.index = at
		ms = append(ms, m)
		if mErr != nil {
			err = errors.Join(err, fmt.Errorf("%s.%s: %w", t, sf.Name, mErr))
		}
	}
	return ms, err
}

func newMember(sf reflect.StructField, name string, above []reflect.Type) (m member, err error) {
	m.Name, m.Doc = name, sf.Tag.Get("doc")
	if enum := sf.Tag.Get("enum"); enum != "" {
		m.Enum = strings.Split(enum, ",")
	}
	if m.Required, err = flag(sf, "required"); err != nil {
		return m, err
	}
	if m.Secret, err = flag(sf, "secret"); err != nil {
		return m, err
	}
	var block reflect.Type
	if m.Type, block, err = typeOf(sf.Type); err != nil {
		return m, err
	}
	if block != nil {
		m.members, err = structMembers(block, above, nil)
	}
	if text, ok := sf.Tag.Lookup("default"); ok {
		m.Default = json.RawMessage(text)
		if m.Type == String || m.Type == Duration {
			m.Default = json.RawMessage(quote(text))
		}
		if !json.Valid(m.Default) {
			return m, fmt.Errorf("default %q is not JSON", text)
		}
	}
	return m, err
}

func flag(sf reflect.StructField, name string) (bool, error) {
	text, ok := sf.Tag.Lookup(name)
	if !ok {
		return false, nil
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("tag %s:%q: write true or leave it out", name, text)
	}
	return v, nil
}

// typeOf returns the type of a field and, if it is a block, the struct of the
// block.
func typeOf(t reflect.Type) (Type, reflect.Type, error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s, ok := scalarOf(t); ok {
		return s, nil, nil
	}
	switch t.Kind() {
	case reflect.Struct:
		return Block, t, nil
	case reflect.Slice, reflect.Map:
		wrap, whole := ListOf, BlockList
		if t.Kind() == reflect.Map {
			if t.Key().Kind() != reflect.String {
				return "", nil, fmt.Errorf("a map has strings as keys, this has %s", t.Key())
			}
			wrap, whole = MapOf, BlockMap
		}
		if t.Elem().Kind() == reflect.Struct {
			return whole, t.Elem(), nil
		}
		elem, block, err := typeOf(t.Elem())
		if err == nil && (block != nil || t.Elem().Kind() == reflect.Pointer) {
			err = fmt.Errorf("%s: write structs and plain values in lists and maps, no pointers, no blocks two levels down", t)
		}
		return wrap(elem), nil, err
	default:
		return "", nil, fmt.Errorf("%s cannot be configured", t)
	}
}

func scalarOf(t reflect.Type) (Type, bool) {
	switch {
	case t == typeDuration:
		return Duration, true
	case t == typeRaw, t.Kind() == reflect.Interface && t.NumMethod() == 0:
		return Any, true
	}
	switch t.Kind() {
	case reflect.String:
		return String, true
	case reflect.Bool:
		return Bool, true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Int, true
	case reflect.Float32, reflect.Float64:
		return Float, true
	default:
		return "", false
	}
}
