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
	return Schema{Fields: clone(k.schema.Fields)}, k.err
}

// known is the schema of a struct that was read before.
type known struct {
	schema Schema // shared: must not be changed
	err    error
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
	if k.schema.Fields, k.err = fieldsOf(v); k.err == nil {
		k.err = k.schema.Check()
	} else {
		k.schema.Fields = nil
	}
	structs.Store(t, k)
	return k
}

// clone copies fields, without their places in a struct.
func clone(fields []Field) (fs []Field) {
	for _, f := range fields {
		f.Fields, f.Default, f.Enum, f.index = clone(f.Fields), slices.Clone(f.Default), slices.Clone(f.Enum), nil
		fs = append(fs, f)
	}
	return fs
}

func fieldsOf(v any) ([]Field, error) {
	t := reflect.TypeOf(v)
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("configuration is a struct or a pointer to one, got %T", v)
	}
	return structFields(t, nil, nil)
}

// structFields reads the fields of t. above are the structs that t is nested
// in. index is where t is embedded.
func structFields(t reflect.Type, above []reflect.Type, index []int) (fs []Field, err error) {
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
			sub, subErr := structFields(sf.Type, above, at)
			fs, err = append(fs, sub...), errors.Join(err, subErr)
			continue
		case tag == "" || !sf.IsExported():
			err = errors.Join(err, fmt.Errorf("%s.%s has no name: write a tag berth:\"name\", or berth:\"-\" to leave it out", t, sf.Name))
			continue
		}
		f, fErr := newField(sf, tag, above)
		f.index = at
		fs = append(fs, f)
		if fErr != nil {
			err = errors.Join(err, fmt.Errorf("%s.%s: %w", t, sf.Name, fErr))
		}
	}
	return fs, err
}

func newField(sf reflect.StructField, name string, above []reflect.Type) (f Field, err error) {
	f.Name, f.Doc = name, sf.Tag.Get("doc")
	if enum := sf.Tag.Get("enum"); enum != "" {
		f.Enum = strings.Split(enum, ",")
	}
	if f.Required, err = flag(sf, "required"); err != nil {
		return f, err
	}
	if f.Secret, err = flag(sf, "secret"); err != nil {
		return f, err
	}
	var block reflect.Type
	if f.Type, block, err = typeOf(sf.Type); err != nil {
		return f, err
	}
	if block != nil {
		f.Fields, err = structFields(block, above, nil)
	}
	if text, ok := sf.Tag.Lookup("default"); ok {
		f.Default = json.RawMessage(text)
		if f.Type == String || f.Type == Duration {
			f.Default, _ = json.Marshal(text) //nolint:errchkjson // a text
		}
		if !json.Valid(f.Default) {
			return f, fmt.Errorf("default %q is not JSON", text)
		}
	}
	return f, err
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
