package eval

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/berth-eval/berth/plugins/yamltext"
)

// pure are the functions that look at their arguments alone.
func pure() map[string]function.Function {
	return map[string]function.Function{
		"abs": stdlib.AbsoluteFunc, "ceil": stdlib.CeilFunc, "floor": stdlib.FloorFunc, "log": stdlib.LogFunc,
		"max": stdlib.MaxFunc, "min": stdlib.MinFunc, "parseint": stdlib.ParseIntFunc, "pow": stdlib.PowFunc, "signum": stdlib.SignumFunc,

		"chomp": stdlib.ChompFunc, "lower": stdlib.LowerFunc, "upper": stdlib.UpperFunc, "title": stdlib.TitleFunc,
		"regex": stdlib.RegexFunc, "regexall": stdlib.RegexAllFunc, "split": stdlib.SplitFunc, "strrev": stdlib.ReverseFunc,
		"substr": stdlib.SubstrFunc, "trim": stdlib.TrimFunc, "trimprefix": stdlib.TrimPrefixFunc,
		"trimspace": stdlib.TrimSpaceFunc, "trimsuffix": stdlib.TrimSuffixFunc,
		"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix), "strcontains": affix(strings.Contains),

		"chunklist": stdlib.ChunklistFunc, "coalesce": stdlib.CoalesceFunc, "coalescelist": stdlib.CoalesceListFunc,
		"compact": stdlib.CompactFunc, "concat": stdlib.ConcatFunc, "contains": stdlib.ContainsFunc,
		"element": stdlib.ElementFunc, "flatten": stdlib.FlattenFunc, "index": indexFunc, "keys": stdlib.KeysFunc,
		"lookup": stdlib.LookupFunc, "merge": stdlib.MergeFunc, "range": stdlib.RangeFunc, "reverse": stdlib.ReverseListFunc,
		"setintersection": stdlib.SetIntersectionFunc, "setsubtract": stdlib.SetSubtractFunc, "setunion": stdlib.SetUnionFunc,
		"slice": stdlib.SliceFunc, "sort": stdlib.SortFunc, "values": stdlib.ValuesFunc, "zipmap": stdlib.ZipmapFunc,
		"length": lengthFunc, "distinct": stdlib.DistinctFunc,

		"format": stdlib.FormatFunc, "join": stdlib.JoinFunc, "replace": stdlib.ReplaceFunc,
		"regexreplace": stdlib.RegexReplaceFunc, "indent": stdlib.IndentFunc, "setproduct": stdlib.SetProductFunc,

		"csvdecode": stdlib.CSVDecodeFunc, "jsondecode": stdlib.JSONDecodeFunc, "jsonencode": stdlib.JSONEncodeFunc, "yamldecode": yamlDecodeFunc,
		"base64encode": text("text", func(s string) (string, error) { return base64.StdEncoding.EncodeToString([]byte(s)), nil }),
		"base64decode": text("text", func(s string) (string, error) {
			b, err := base64.StdEncoding.DecodeString(s)
			if err == nil && !utf8.Valid(b) {
				err = errors.New("the bytes are not UTF-8 text")
			}
			return string(b), err
		}),
		"basename": text("path", func(s string) (string, error) { return filepath.Base(s), nil }),
		"dirname":  text("path", func(s string) (string, error) { return filepath.Dir(s), nil }),

		"tobool": stdlib.MakeToFunc(cty.Bool), "tolist": stdlib.MakeToFunc(cty.List(cty.DynamicPseudoType)),
		"tomap": stdlib.MakeToFunc(cty.Map(cty.DynamicPseudoType)), "tonumber": stdlib.MakeToFunc(cty.Number),
		"toset": stdlib.MakeToFunc(cty.Set(cty.DynamicPseudoType)), "tostring": stdlib.MakeToFunc(cty.String),
	}
}

// functions are the functions of an experiment.
func (e *Env) functions() map[string]function.Function {
	fs := pure()
	fs["file"] = text("path", func(path string) (string, error) {
		content, err := e.reader.Read(path)
		if err == nil && !utf8.Valid(content) {
			err = fmt.Errorf("%q is not UTF-8 text", path)
		}
		return string(content), err
	})
	fs["fileexists"] = function.New(&function.Spec{
		Params: []function.Parameter{{Name: "path", Type: cty.String}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			ok, err := e.reader.Exists(args[0].AsString())
			return cty.BoolVal(ok), err
		},
	})
	fs["glob"] = function.New(&function.Spec{
		Params: []function.Parameter{{Name: "pattern", Type: cty.String}},
		Type:   function.StaticReturnType(cty.List(cty.String)),
		Impl:   e.glob,
	})
	fs["abspath"] = text("path", func(s string) (string, error) { return e.reader.abs(s), nil })
	fs["pathexpand"] = text("path", func(s string) (string, error) {
		rest, ok := strings.CutPrefix(s, "~")
		if !ok || rest != "" && rest[0] != '/' {
			return s, nil
		}
		home, ok := e.lookupEnv("HOME")
		if !ok {
			return "", errors.New("HOME is not set")
		}
		return home + rest, nil
	})
	fs["env"] = envFunc(e.lookupEnv)
	fs["secret"] = Secrets(nil).function()
	for name, f := range fs {
		fs[name] = limited(f)
	}
	fs["can"], fs["try"] = tryfunc.CanFunc, limited(tryfunc.TryFunc)
	return fs
}

func (e *Env) glob(args []cty.Value, _ cty.Type) (cty.Value, error) {
	names, err := e.reader.Glob(args[0].AsString())
	if err != nil || len(names) == 0 {
		return cty.ListValEmpty(cty.String), err
	}
	list := make([]cty.Value, len(names))
	for i, n := range names {
		list[i] = cty.StringVal(n)
	}
	return cty.ListVal(list), nil
}

func envFunc(lookup func(string) (string, bool)) function.Function {
	return function.New(&function.Spec{
		Params:   []function.Parameter{{Name: "name", Type: cty.String}},
		VarParam: &function.Parameter{Name: "default", Type: cty.String, AllowNull: true},
		Type:     function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			name := args[0].AsString()
			if len(args) > 2 {
				return cty.NilVal, function.NewArgErrorf(2, "one default is enough")
			}
			if v, ok := lookup(name); ok {
				return cty.StringVal(v), nil
			}
			if len(args) == 2 {
				return args[1], nil
			}
			return cty.NilVal, function.NewArgErrorf(0, "the environment variable %s is not set: set it, or write env(%q, \"default\")", name, name)
		},
	})
}

// text is a function from one string to another.
func text(param string, f func(string) (string, error)) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: param, Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			s, err := f(args[0].AsString())
			if errors.Is(err, os.ErrNotExist) {
				err = fmt.Errorf("no such file: %q", args[0].AsString())
			}
			if err != nil {
				return cty.NilVal, function.NewArgError(0, err)
			}
			return cty.StringVal(s), nil
		},
	})
}

// affix is a question about two strings.
func affix(f func(s, part string) bool) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "text", Type: cty.String}, {Name: "part", Type: cty.String}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			return cty.BoolVal(f(args[0].AsString(), args[1].AsString())), nil
		},
	})
}

// lengthFunc counts the elements of a collection or the characters of a text.
var lengthFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		v := args[0]
		if v.Type() == cty.String {
			return stdlib.Strlen(v)
		}
		if !v.CanIterateElements() {
			return cty.NilVal, function.NewArgErrorf(0, "a list, set, map, object or string has a length")
		}
		return v.Length(), nil
	},
})

// indexFunc is the place of a value in a list.
var indexFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType}, {Name: "value", Type: cty.DynamicPseudoType}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		t := args[0].Type()
		if !t.IsListType() && !t.IsTupleType() {
			return cty.NilVal, function.NewArgErrorf(0, "a list is needed")
		}
		for it := args[0].ElementIterator(); it.Next(); {
			i, v := it.Element()
			if eq, err := stdlib.Equal(v, args[1]); err == nil && eq.IsKnown() && eq.True() {
				return i, nil
			}
		}
		return cty.NilVal, function.NewArgErrorf(1, "the list does not have the value")
	},
})

// yamlDecodeFunc reads one YAML document without aliases, which can make a
// small text a large value.
var yamlDecodeFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "text", Type: cty.String}},
	Type: func(args []cty.Value) (cty.Type, error) {
		if !args[0].IsKnown() {
			return cty.DynamicPseudoType, nil
		}
		v, err := yamlDecode(args[0].AsString())
		if err != nil {
			return cty.NilType, function.NewArgError(0, err)
		}
		return v.Type(), nil
	},
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return yamlDecode(args[0].AsString()) },
})

func yamlDecode(s string) (cty.Value, error) {
	if err := yamltext.Check([]byte(s)); err != nil {
		return cty.NilVal, err
	}
	for _, t := range lexer.Tokenize(s) {
		if t.Type == token.AliasType || t.Type == token.MergeKeyType {
			return cty.NilVal, fmt.Errorf("line %d: aliases and merge keys are not supported", t.Position.Line)
		}
	}
	var v any
	if err := yamltext.Unmarshal([]byte(s), false, &v); err != nil {
		return cty.NilVal, fmt.Errorf("not YAML: %s", yaml.FormatError(err, false, false))
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return cty.NilVal, fmt.Errorf("not a value that JSON could hold: %w", err)
	}
	return stdlib.JSONDecode(cty.StringVal(string(raw)))
}
