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
	return k.schema.read("", raw, v.Elem())
}

// setScalar sets a plain value that fits its type.
func setScalar(at Path, t Type, raw json.RawMessage, v reflect.Value) Problems {
	var err error
	switch {
	case t == Int:
		return setInt(at, raw, v)
	case v.Type() == typeDuration:
		var text string
		var d time.Duration
		if err = json.Unmarshal(raw, &text); err == nil {
			d, err = time.ParseDuration(text)
			v.SetInt(int64(d))
		}
	default:
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
