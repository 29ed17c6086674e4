package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
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

// Problem is one problem in a configuration. Path says where. The host turns it
// into file, line and column, which a plugin never sees.
type Problem struct {
	Path    Path   `json:"path"`
	Summary string `json:"summary"` // what is wrong, without a full stop
	Detail  string `json:"detail"`  // the given value, the allowed values, how to fix it
}

// String returns the problem on one line, for errors and tests.
func (p Problem) String() string {
	s := p.Path.String() + ": " + p.Summary
	if p.Detail != "" {
		s += ": " + p.Detail
	}
	return s
}

// Range returns a problem unless a number is from least to most.
func Range[N int | int64 | float64](at Path, v, least, most N) []Problem {
	if v >= least && v <= most {
		return nil
	}
	return []Problem{{at, "Number is out of range", fmt.Sprintf("Got %v. Write a number from %v to %v.", v, least, most)}}
}

// NotNegative returns a problem if a number is below 0.
func NotNegative[N int | int64 | float64](at Path, v N) []Problem {
	if v >= 0 {
		return nil
	}
	return []Problem{{at, "Number is negative", fmt.Sprintf("Got %v. Write 0 or more.", v)}}
}

// Problems are the problems of one configuration, as an error.
type Problems []Problem

// Error lists every problem, one per line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Validator is a configuration that can check its own values. Validate has no
// side effects, opens nothing, and reports every problem, not only the first.
type Validator interface {
	Validate() []Problem
}

// Validate decodes raw into the struct that into points to, as [Decode] does,
// and then calls its Validate if it is a [Validator]. A plugin answers a
// Validate request with the result. No problems means that the configuration is
// valid.
func Validate(raw json.RawMessage, into any) []Problem {
	if ps := decode(raw, into); len(ps) > 0 {
		return ps
	}
	if v, ok := into.(Validator); ok {
		return v.Validate()
	}
	return nil
}

// Over returns an object with the members of two others: those of over replace
// members of base with the same name. Each may be empty. A member that is null is
// absent.
func Over(base, over json.RawMessage) (json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	for _, raw := range []json.RawMessage{base, over} {
		members, err := Members(raw)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, members)
	}
	return json.Marshal(all)
}

// Members returns the members of an object that are not null. It may be empty.
func Members(raw json.RawMessage) (map[string]json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if isNull(raw) {
		return members, nil
	}
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, fmt.Errorf("write a JSON object: %w", err)
	}
	maps.DeleteFunc(members, func(_ string, value json.RawMessage) bool { return string(bytes.TrimSpace(value)) == "null" })
	return members, nil
}
