package uniclaw

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/berth-eval/berth/plugins/suggest"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/yamltext"
)

// maxSize bounds the file of a task, in bytes, and maxDepth how deep it nests.
const (
	maxSize  = 1 << 20
	maxDepth = 32
)

// reader takes the values out of one file and collects its problems.
type reader struct {
	file     string // relative to the dataset
	lenient  bool
	problems []task.Problem
}

func (r *reader) report(s task.Severity, at *token.Position, key, summary, detail string) {
	p := task.Problem{File: r.file, Severity: s, Key: key, Summary: summary, Detail: detail}
	if at != nil {
		p.Line, p.Column = at.Line, at.Column
	}
	r.problems = append(r.problems, p)
}

// parse reads a file; nil: it cannot be read, and a problem says why.
func (r *reader) parse(text []byte) *table {
	f, err := parse(text)
	if err != nil {
		p := task.Problem{File: r.file, Severity: task.Error, Summary: "Not valid YAML", Detail: firstLine(err.Error()) + "."}
		if ye, ok := errors.AsType[yaml.Error](err); ok {
			p.Detail = firstLine(ye.GetMessage()) + "."
			if tk := ye.GetToken(); tk != nil && tk.Position != nil {
				p.Line, p.Column = tk.Position.Line, tk.Position.Column
			}
		}
		r.problems = append(r.problems, p)
		return nil
	}
	var bodies []ast.Node
	for _, d := range f.Docs {
		if d.Body != nil && d.Body.Type() != ast.CommentType {
			bodies = append(bodies, d.Body)
		}
	}
	switch {
	case len(bodies) == 0:
		r.report(task.Error, nil, "", "File is empty", "A task has at least task_id, category and task.")
		return nil
	case len(bodies) > 1:
		r.report(task.Error, position(bodies[1]), "", "More than one document", "A file is one task.")
		return nil
	}
	return r.table("", bodies[0])
}

// parse is the parser, whose panics are the file's fault.
func parse(text []byte) (f *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the parser gave up: %v", r)
		}
	}()
	if err = yamltext.Check(text); err != nil {
		return nil, err
	}
	return parser.ParseBytes(text, 0)
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return strings.TrimSuffix(s, ".")
}

func position(n ast.Node) *token.Position {
	if n == nil || n.GetToken() == nil {
		return nil
	}
	if values, ok := pairs(n); ok && len(values) > 0 { // its own token is the first colon
		return position(values[0].Key)
	}
	return n.GetToken().Position
}

// table hands out the values of a mapping. Each key that is asked for is known;
// done reports the others.
type table struct {
	r     *reader
	path  string
	node  ast.Node
	keys  []string
	at    map[string]*token.Position // of the keys
	value map[string]ast.Node
	known []string
}

// table reads a mapping; nil: it is none, which is reported.
func (r *reader) table(path string, n ast.Node) *table {
	t := &table{r: r, path: path, node: n, at: map[string]*token.Position{}, value: map[string]ast.Node{}}
	values, ok := pairs(n)
	if !ok {
		r.report(task.Error, position(n), path, "Wrong type", fmt.Sprintf("%s must be a mapping, got %s.", named(path), kindOf(n)))
		return nil
	}
	for _, v := range values {
		key := v.Key.GetToken().Value
		if v.Key.Type() == ast.MergeKeyType {
			r.report(task.Error, position(v.Key), path, "Merge key", "Write the keys out: << is not read.")
			continue
		}
		if _, twice := t.at[key]; twice {
			r.report(task.Error, position(v.Key), join(path, key), "Key is written twice", "Remove one of them.")
			continue
		}
		t.keys = append(t.keys, key)
		t.at[key], t.value[key] = position(v.Key), v.Value
	}
	return t
}

// pairs returns the pairs of a mapping.
func pairs(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, true
	}
	return nil, false
}

func named(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// kindOf names what a value is.
func kindOf(n ast.Node) string {
	switch n.(type) {
	case *ast.NullNode:
		return "nothing"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "the number " + n.GetToken().Value
	case *ast.BoolNode:
		return n.GetToken().Value
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	default:
		return "an anchor, an alias or a tag, which are not read"
	}
}

func (t *table) bad(key, summary, format string, args ...any) {
	at := t.at[key]
	if at == nil {
		at = position(t.node)
	}
	t.r.report(task.Error, at, join(t.path, key), summary, fmt.Sprintf(format, args...))
}

// get returns the value of a key; nil: it is absent, or empty.
func (t *table) get(key string) ast.Node {
	t.known = append(t.known, key)
	n := t.value[key]
	if _, null := n.(*ast.NullNode); null {
		return nil
	}
	return n
}

// has reports whether a key is there, also without a value.
func (t *table) has(key string) bool { return t.at[key] != nil }

func (t *table) wrong(key, want string, n ast.Node) {
	t.bad(key, "Wrong type", "%s must be %s, got %s.", join(t.path, key), want, kindOf(n))
}

func textOf(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	}
	return "", false
}

func (t *table) text(key, usual string) string {
	n := t.get(key)
	if n == nil {
		return usual
	}
	s, ok := textOf(n)
	if !ok {
		t.wrong(key, "a text (put it in quotes)", n)
	}
	return s
}

// required is a text that has to be there.
func (t *table) required(key string) string {
	s := t.text(key, "")
	if strings.TrimSpace(s) == "" && !slices.ContainsFunc(t.r.problems, func(p task.Problem) bool { return p.Key == join(t.path, key) }) {
		t.bad(key, "Key is missing", "%s is required, and not empty.", join(t.path, key))
	}
	return s
}

// word is a text of a few.
func (t *table) word(key, usual string, words ...string) string {
	n := t.get(key)
	if n == nil {
		return usual
	}
	s, ok := textOf(n)
	if b, is := n.(*ast.BoolNode); is {
		s, ok = fmt.Sprint(b.Value), true
	}
	if !ok || !slices.Contains(words, s) {
		if !ok {
			s = kindOf(n)
		}
		t.bad(key, "Wrong value", "%s is %q: write one of %s.%s", join(t.path, key), s, strings.Join(words, ", "), hint(s, words))
	}
	return s
}

func hint(got string, known []string) string {
	if best := suggest.Word(got, known); best != "" {
		return fmt.Sprintf(" Did you mean %q?", best)
	}
	return ""
}

func (t *table) boolean(key string) bool {
	n := t.get(key)
	if n == nil {
		return false
	}
	b, ok := n.(*ast.BoolNode)
	if !ok {
		t.wrong(key, "true or false", n)
		return false
	}
	return b.Value
}

// number is a finite number from least to most.
func (t *table) number(key string, usual, least, most float64) float64 {
	n := t.get(key)
	if n == nil {
		return usual
	}
	var f float64
	switch v := n.(type) {
	case *ast.IntegerNode:
		if yaml.NodeToValue(v, &f) != nil {
			f = math.Inf(1)
		}
	case *ast.FloatNode:
		f = v.Value
	case *ast.InfinityNode, *ast.NanNode:
		f = math.Inf(1)
	default:
		t.wrong(key, "a number", n)
		return usual
	}
	if f < least || f > most || math.IsNaN(f) {
		t.bad(key, "Wrong value", "%s is %s: it must be from %g to %g.", join(t.path, key), n.GetToken().Value, least, most)
		return usual
	}
	return f
}

// whole is a number without a fraction.
func (t *table) whole(key string, usual, least, most int) int {
	f := t.number(key, float64(usual), float64(least), float64(most))
	if f != math.Trunc(f) {
		t.bad(key, "Wrong value", "%s is %g: it must be a whole number.", join(t.path, key), f)
		return usual
	}
	return int(f)
}

// below is a mapping; nil: it is absent or no mapping.
func (t *table) below(key string) *table {
	n := t.get(key)
	if n == nil {
		return nil
	}
	return t.r.table(join(t.path, key), n)
}

// entry is an element of a list, with its path.
type entry struct {
	path string
	node ast.Node
}

func (t *table) list(key string) (out []entry) {
	n := t.get(key)
	if n == nil {
		return nil
	}
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		t.wrong(key, "a list", n)
		return nil
	}
	for i, v := range s.Values {
		out = append(out, entry{fmt.Sprintf("%s[%d]", join(t.path, key), i), v})
	}
	return out
}

// texts is a list of texts.
func (t *table) texts(key string) (out []text) {
	for _, e := range t.list(key) {
		s, ok := textOf(e.node)
		if !ok {
			t.r.report(task.Error, position(e.node), e.path, "Wrong type", fmt.Sprintf("%s must be a text, got %s.", e.path, kindOf(e.node)))
			continue
		}
		out = append(out, text{s, e})
	}
	return out
}

// text is an element of a list of texts.
type text struct {
	value string
	entry
}

// free returns a mapping with any keys as JSON; nil: it is absent.
func (t *table) free() json.RawMessage {
	if t == nil {
		return nil
	}
	v, err := plain(t.node, 0)
	if err == nil {
		var b []byte
		if b, err = json.Marshal(v); err == nil {
			return b
		}
	}
	t.r.report(task.Error, position(t.node), t.path, "Cannot be read", err.Error()+".")
	return nil
}

// plain converts a value for JSON.
func plain(n ast.Node, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("it nests deeper than %d levels", maxDepth)
	}
	switch v := n.(type) {
	case *ast.NullNode:
		return nil, nil //nolint:nilnil // null is a value
	case *ast.StringNode, *ast.LiteralNode:
		s, _ := textOf(n)
		return s, nil
	case *ast.BoolNode:
		return v.Value, nil
	case *ast.IntegerNode:
		return v.Value, nil
	case *ast.FloatNode:
		return v.Value, nil
	case *ast.SequenceNode:
		list := []any{}
		for _, e := range v.Values {
			one, err := plain(e, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, one)
		}
		return list, nil
	case *ast.MappingNode, *ast.MappingValueNode:
		m := map[string]any{}
		values, _ := pairs(n)
		for _, e := range values {
			one, err := plain(e.Value, depth+1)
			if err != nil {
				return nil, err
			}
			m[e.Key.GetToken().Value] = one
		}
		return m, nil
	default:
		return nil, fmt.Errorf("it has %s", kindOf(n))
	}
}

// done reports the keys that nobody asked for.
func (t *table) done() {
	s, more := task.Error, ""
	if t.r.lenient {
		s, more = task.Warning, " It is ignored."
	}
	for _, key := range t.keys {
		if slices.Contains(t.known, key) {
			continue
		}
		help := hint(key, t.known)
		if help == "" {
			help = " Known here: " + strings.Join(slices.Sorted(slices.Values(t.known)), ", ") + "."
		}
		t.r.report(s, t.at[key], join(t.path, key), "Unknown key", fmt.Sprintf("%q is not known here.%s%s", key, help, more))
	}
}
