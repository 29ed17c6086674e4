package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"
)

// Decode reads the strict JSON of a configuration into the struct that into
// points to, and sets the defaults of absent fields. Unknown names, wrong types
// and absent required fields are errors, all reported at once as [Problems]. An
// absent nested block has its own defaults, unless it is a pointer, which stays
// nil. Decode does not call [Validator]; see [Validate].
func Decode(raw json.RawMessage, into any) error {
	if ps := decode(raw, into); len(ps) > 0 {
		return ps
	}
	return nil
}

func decode(raw json.RawMessage, into any) Problems {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return Problems{{"", "Bug in the plugin", fmt.Sprintf("decode into a pointer to a struct, got %T", into)}}
	}
	k := knownOf(into)
	if k.err != nil {
		return Problems{{"", "Bug in the plugin", k.err.Error()}}
	}
	if ps := k.schema.Problems(raw); len(ps) > 0 {
		return ps
	}
	return setStruct("", k.members, raw, v.Elem())
}

// setStruct sets the fields of v from an object that fits the schema.
func setStruct(at Path, ms []member, raw json.RawMessage, v reflect.Value) (ps Problems) {
	given := map[string]json.RawMessage{}
	if !isNull(raw) {
		obj, err := objectOf(raw)
		if err != nil {
			return Problems{{at, "Not a block", err.Error()}}
		}
		for _, e := range obj {
			given[e.key] = e.value
		}
	}
	for _, m := range ms {
		value := given[m.Name]
		if isNull(value) {
			value = m.Default
		}
		ps = append(ps, m.set(at.Attr(m.Name), value, v.FieldByIndex(m.index))...)
	}
	return ps
}

func (m member) set(at Path, raw json.RawMessage, v reflect.Value) Problems {
	if isNull(raw) && (m.Type != Block || v.Kind() == reflect.Pointer) {
		v.SetZero()
		return nil
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch m.Type {
	case Block:
		return setStruct(at, m.members, raw, v)
	case BlockList:
		return setList(at, raw, v, func(p Path, raw json.RawMessage, v reflect.Value) Problems {
			return setStruct(p, m.members, raw, v)
		})
	case BlockMap:
		return setMap(at, raw, v, func(p Path, raw json.RawMessage, v reflect.Value) Problems {
			return setStruct(p, m.members, raw, v)
		})
	default:
		return setType(m.Type)(at, raw, v)
	}
}

type setter func(Path, json.RawMessage, reflect.Value) Problems

func setType(t Type) setter {
	if elem, ok := t.List(); ok {
		return func(at Path, raw json.RawMessage, v reflect.Value) Problems {
			return setList(at, raw, v, setType(elem))
		}
	}
	if elem, ok := t.Map(); ok {
		return func(at Path, raw json.RawMessage, v reflect.Value) Problems {
			return setMap(at, raw, v, setType(elem))
		}
	}
	if t == Int {
		return setInt
	}
	return setScalar
}

func setScalar(at Path, raw json.RawMessage, v reflect.Value) Problems {
	var err error
	if v.Type() == typeDuration {
		var text string
		var d time.Duration
		if err = json.Unmarshal(raw, &text); err == nil {
			d, err = time.ParseDuration(text)
			v.SetInt(int64(d))
		}
	} else {
		err = json.Unmarshal(raw, v.Addr().Interface())
	}
	if err != nil {
		return Problems{{at, "Wrong value", err.Error()}}
	}
	return nil
}

func setInt(at Path, raw json.RawMessage, v reflect.Value) Problems {
	i, ok := integer(raw)
	switch {
	case ok && v.CanInt() && i.IsInt64() && !v.OverflowInt(i.Int64()):
		v.SetInt(i.Int64())
		return nil
	case ok && v.CanUint() && i.IsUint64() && !v.OverflowUint(i.Uint64()):
		v.SetUint(i.Uint64())
		return nil
	}
	return Problems{{at, "Number out of range", fmt.Sprintf("Got %.40s. It must fit %s.", raw, v.Kind())}}
}

func setList(at Path, raw json.RawMessage, v reflect.Value, elem setter) (ps Problems) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return Problems{{at, "Wrong value", err.Error()}}
	}
	v.Set(reflect.MakeSlice(v.Type(), len(list), len(list)))
	for i, e := range list {
		ps = append(ps, elem(at.Index(i), e, v.Index(i))...)
	}
	return ps
}

func setMap(at Path, raw json.RawMessage, v reflect.Value, elem setter) (ps Problems) {
	obj, err := objectOf(raw)
	if err != nil {
		return Problems{{at, "Wrong value", err.Error()}}
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(obj)))
	for _, e := range obj {
		one := reflect.New(v.Type().Elem()).Elem()
		ps = append(ps, elem(at.Key(e.key), e.value, one)...)
		v.SetMapIndex(reflect.ValueOf(e.key).Convert(v.Type().Key()), one)
	}
	return ps
}
