// Package document reads YAML files of tasks: values by name, with the line of
// whatever is wrong with them. Anchors, aliases, tags and merge keys are not read.
//
// It must not know any task format.
package document

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
	"github.com/berth-eval/berth/tasks/internal/folder"
)

// MaxSize bounds the file of a task, in bytes, and maxDepth how deep it nests.
const (
	MaxSize  = 1 << 20
	maxDepth = 32
)

// Reader takes the values out of one file and collects its problems.
type Reader struct {
	File     string // relative to the dataset
	Lenient  bool   // unknown keys are warnings
	Problems []task.Problem
}

// Report adds a problem. at is nil if its place is unknown.
func (r *Reader) Report(s task.Severity, at *token.Position, key, summary, detail string) {
	p := task.Problem{File: r.File, Severity: s, Key: key, Summary: summary, Detail: detail}
	if at != nil {
		p.Line, p.Column = at.Line, at.Column
	}
	r.Problems = append(r.Problems, p)
}

// Parse reads a file; nil: it cannot be read, and a problem says why. A byte order mark
// is left out.
func (r *Reader) Parse(text []byte) *Table {
	text, marked := folder.Unmarked(r.File, text)
	if marked != nil {
		r.Problems = append(r.Problems, *marked)
	}
	f, err := parse(text)
	if err != nil {
		p := task.Problem{File: r.File, Severity: task.Error, Summary: "Not valid YAML", Detail: firstLine(err.Error()) + "."}
		if ye, ok := errors.AsType[yaml.Error](err); ok {
			p.Detail = firstLine(ye.GetMessage()) + "."
			if tk := ye.GetToken(); tk != nil && tk.Position != nil {
				p.Line, p.Column = tk.Position.Line, tk.Position.Column
			}
		}
		r.Problems = append(r.Problems, p)
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
		r.Report(task.Error, nil, "", "File is empty", "It has no task.")
		return nil
	case len(bodies) > 1:
		r.Report(task.Error, Position(bodies[1]), "", "More than one document", "Only the first one would be read: remove the others.")
		return nil
	}
	return r.Table("", bodies[0])
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

// Position returns where a value begins; nil: unknown.
func Position(n ast.Node) *token.Position {
	if n == nil || n.GetToken() == nil {
		return nil
	}
	if values, ok := pairs(n); ok && len(values) > 0 { // its own token is the first colon
		return Position(values[0].Key)
	}
	return n.GetToken().Position
}

// Table hands out the values of a mapping. Each key that is asked for is known;
// Done reports the others.
type Table struct {
	R     *Reader
	Path  string // dotted; empty: the whole file
	Node  ast.Node
	Known []string // the keys that were asked for

	keys  []string
	at    map[string]*token.Position // of the keys
	value map[string]ast.Node
}

// Table reads a mapping; nil: it is none, which is reported.
func (r *Reader) Table(path string, n ast.Node) *Table {
	t := &Table{R: r, Path: path, Node: n, at: map[string]*token.Position{}, value: map[string]ast.Node{}}
	values, ok := pairs(n)
	if !ok {
		r.Report(task.Error, Position(n), path, "Wrong type", fmt.Sprintf("%s must be a mapping, got %s.", named(path), KindOf(n)))
		return nil
	}
	for _, v := range values {
		key := v.Key.GetToken().Value
		if v.Key.Type() == ast.MergeKeyType {
			r.Report(task.Error, Position(v.Key), path, "Merge key", "Write the keys out: << is not read.")
			continue
		}
		if _, twice := t.at[key]; twice {
			r.Report(task.Error, Position(v.Key), join(path, key), "Key is written twice", "Remove one of them.")
			continue
		}
		t.keys = append(t.keys, key)
		t.at[key], t.value[key] = Position(v.Key), v.Value
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

// KindOf names what a value is.
func KindOf(n ast.Node) string {
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

// Bad reports an error about a key.
func (t *Table) Bad(key, summary, format string, args ...any) {
	at := t.at[key]
	if at == nil {
		at = Position(t.Node)
	}
	t.R.Report(task.Error, at, join(t.Path, key), summary, fmt.Sprintf(format, args...))
}

// Get returns the value of a key; nil: it is absent, or empty.
func (t *Table) Get(key string) ast.Node {
	t.Known = append(t.Known, key)
	n := t.value[key]
	if _, null := n.(*ast.NullNode); null {
		return nil
	}
	return n
}

// Has reports whether a key is there, also without a value.
func (t *Table) Has(key string) bool { return t.at[key] != nil }

func (t *Table) wrong(key, want string, n ast.Node) {
	t.Bad(key, "Wrong type", "%s must be %s, got %s.", join(t.Path, key), want, KindOf(n))
}

// TextOf returns the text that a value is.
func TextOf(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	}
	return "", false
}

// Text is a text; usual if it is absent.
func (t *Table) Text(key, usual string) string {
	n := t.Get(key)
	if n == nil {
		return usual
	}
	s, ok := TextOf(n)
	if !ok {
		t.wrong(key, "a text (put it in quotes)", n)
	}
	return s
}

// Required is a text that has to be there.
func (t *Table) Required(key string) string {
	s := t.Text(key, "")
	if strings.TrimSpace(s) == "" && !slices.ContainsFunc(t.R.Problems, func(p task.Problem) bool { return p.Key == join(t.Path, key) }) {
		t.Bad(key, "Key is missing", "%s is required, and not empty.", join(t.Path, key))
	}
	return s
}

// Word is a text of a few.
func (t *Table) Word(key, usual string, words ...string) string {
	n := t.Get(key)
	if n == nil {
		return usual
	}
	s, ok := TextOf(n)
	if b, is := n.(*ast.BoolNode); is {
		s, ok = fmt.Sprint(b.Value), true
	}
	if !ok || !slices.Contains(words, s) {
		if !ok {
			s = KindOf(n)
		}
		t.Bad(key, "Wrong value", "%s is %q: write one of %s.%s", join(t.Path, key), s, strings.Join(words, ", "), hint(s, words))
	}
	return s
}

func hint(got string, known []string) string {
	if best := suggest.Word(got, known); best != "" {
		return fmt.Sprintf(" Did you mean %q?", best)
	}
	return ""
}

// Boolean is true or false; false if it is absent.
func (t *Table) Boolean(key string) bool {
	n := t.Get(key)
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

// Number is a finite number from least to most.
func (t *Table) Number(key string, usual, least, most float64) float64 {
	n := t.Get(key)
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
		t.Bad(key, "Wrong value", "%s is %s: it must be from %g to %g.", join(t.Path, key), n.GetToken().Value, least, most)
		return usual
	}
	return f
}

// Whole is a number without a fraction.
func (t *Table) Whole(key string, usual, least, most int) int {
	f := t.Number(key, float64(usual), float64(least), float64(most))
	if f != math.Trunc(f) {
		t.Bad(key, "Wrong value", "%s is %g: it must be a whole number.", join(t.Path, key), f)
		return usual
	}
	return int(f)
}

// Below is a mapping; nil: it is absent or no mapping.
func (t *Table) Below(key string) *Table {
	n := t.Get(key)
	if n == nil {
		return nil
	}
	return t.R.Table(join(t.Path, key), n)
}

// Entry is an element of a list, with its path.
type Entry struct {
	Path string
	Node ast.Node
}

// List is the elements of a list; nil: it is absent or no list.
func (t *Table) List(key string) (out []Entry) {
	n := t.Get(key)
	if n == nil {
		return nil
	}
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		t.wrong(key, "a list", n)
		return nil
	}
	for i, v := range s.Values {
		out = append(out, Entry{fmt.Sprintf("%s[%d]", join(t.Path, key), i), v})
	}
	return out
}

// Texts is a list of texts.
func (t *Table) Texts(key string) (out []Text) {
	for _, e := range t.List(key) {
		s, ok := TextOf(e.Node)
		if !ok {
			t.R.Report(task.Error, Position(e.Node), e.Path, "Wrong type", fmt.Sprintf("%s must be a text, got %s.", e.Path, KindOf(e.Node)))
			continue
		}
		out = append(out, Text{s, e})
	}
	return out
}

// Text is an element of a list of texts.
type Text struct {
	Value string
	Entry
}

// Rest returns the keys with values that nothing has read yet.
func (t *Table) Rest() (keys []string) {
	for _, key := range t.keys {
		if !slices.Contains(t.Known, key) && t.Get(key) != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// Free returns a mapping with any keys as JSON; nil: it is absent.
func (t *Table) Free() json.RawMessage {
	if t == nil {
		return nil
	}
	return t.R.JSON(Entry{t.Path, t.Node})
}

// JSON returns a value as JSON; nil: it cannot be said in JSON, which is reported.
func (r *Reader) JSON(e Entry) json.RawMessage {
	v, err := plain(e.Node, 0)
	if err == nil {
		var b []byte
		if b, err = json.Marshal(v); err == nil {
			return b
		}
	}
	r.Report(task.Error, Position(e.Node), e.Path, "Cannot be read", err.Error()+".")
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
		s, _ := TextOf(n)
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
		return nil, fmt.Errorf("it has %s", KindOf(n))
	}
}

// Done reports the keys that were never read.
func (t *Table) Done() {
	s, more := task.Error, ""
	if t.R.Lenient {
		s, more = task.Warning, " It is ignored."
	}
	for _, key := range t.keys {
		if slices.Contains(t.Known, key) {
			continue
		}
		help := hint(key, t.Known)
		if help == "" {
			help = " Known here: " + strings.Join(slices.Sorted(slices.Values(t.Known)), ", ") + "."
		}
		t.R.Report(s, t.at[key], join(t.Path, key), "Unknown key", fmt.Sprintf("%q is not known here.%s%s", key, help, more))
	}
}
