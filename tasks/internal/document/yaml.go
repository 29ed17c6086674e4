package document

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/yamltext"
	"github.com/berth-eval/berth/tasks/internal/folder"
)

// YAML reads a file; nil: it cannot be read, and a problem says why. A byte order
// mark is left out.
func (r *Reader) YAML(text []byte) *Table {
	text, marked := folder.Unmarked(r.File, text)
	if marked != nil {
		r.Problems = append(r.Problems, *marked)
	}
	bodies, p := Bodies(r.File, text)
	switch {
	case p != nil:
		r.Problems = append(r.Problems, *p)
	case len(bodies) == 0:
		r.Bad("", "File is empty", "It has no task.")
	case len(bodies) > 1:
		r.report(task.Error, place(bodies[1]), "", "More than one document", "Only the first one would be read: remove the others.")
	default:
		r.at, r.blocks = map[string]Position{"": place(bodies[0])}, map[string]bool{}
		v := r.value("", bodies[0], 0)
		if values, ok := v.(map[string]any); ok {
			return r.Table(values)
		}
		r.report(task.Error, place(bodies[0]), "", "Wrong type", fmt.Sprintf("the file must be a mapping, got %s.", r.Show(v)))
	}
	return nil
}

// Bodies returns the documents of a YAML file, or why it cannot be read.
func Bodies(file string, text []byte) (bodies []ast.Node, _ *task.Problem) {
	f, err := parse(text)
	if err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		p := task.Problem{File: file, Severity: task.Error, Summary: "Not valid YAML"}
		if ye, ok := errors.AsType[yaml.Error](err); ok {
			line, _, _ = strings.Cut(ye.GetMessage(), "\n")
			if tk := ye.GetToken(); tk != nil && tk.Position != nil {
				p.Line, p.Column = tk.Position.Line, tk.Position.Column
			}
		}
		p.Detail = strings.TrimSuffix(line, ".") + "."
		return nil, &p
	}
	for _, d := range f.Docs {
		if d.Body != nil && d.Body.Type() != ast.CommentType {
			bodies = append(bodies, d.Body)
		}
	}
	return bodies, nil
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

// Pairs returns the keys and values of a mapping.
func Pairs(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, true
	}
	return nil, false
}

// place returns where a value begins.
func place(n ast.Node) Position {
	if values, ok := Pairs(n); ok && len(values) > 0 { // its own token is the first colon
		n = values[0].Key
	}
	if n == nil {
		return Position{}
	}
	return placeOf(n.GetToken())
}

func placeOf(t *token.Token) Position {
	if t == nil || t.Position == nil {
		return Position{}
	}
	return Position{t.Position.Line, t.Position.Column}
}

// value converts a value, and notes the places in it.
func (r *Reader) value(path string, n ast.Node, depth int) any {
	if depth > maxNesting {
		r.tooDeep(place(n))
		return nil
	}
	switch v := n.(type) {
	case nil, *ast.NullNode:
		return nil
	case *ast.StringNode:
		return v.Value
	case *ast.LiteralNode:
		r.blocks[path] = true
		return v.Value.Value
	case *ast.BoolNode:
		return v.Value
	case *ast.IntegerNode:
		return Number{n.GetToken().Value, v.Value}
	case *ast.FloatNode:
		return Number{n.GetToken().Value, v.Value}
	case *ast.InfinityNode:
		return Number{n.GetToken().Value, v.Value}
	case *ast.NanNode:
		return Number{n.GetToken().Value, v.GetValue()}
	case *ast.SequenceNode:
		list := make([]any, len(v.Values))
		for i, e := range v.Values {
			at := Index(path, i)
			r.at[at] = place(e)
			list[i] = r.value(at, e, depth+1)
		}
		return list
	}
	pairs, ok := Pairs(n)
	if !ok {
		return unread{}
	}
	m := make(map[string]any, len(pairs))
	for _, p := range pairs {
		key := p.Key.GetToken().Value
		at := Join(path, key)
		_, twice := m[key]
		switch {
		case p.Key.Type() == ast.MergeKeyType:
			r.report(task.Error, placeOf(p.Key.GetToken()), path, "Merge key", "Write the keys out: << is not read.")
		case twice:
			r.report(task.Error, placeOf(p.Key.GetToken()), at, "Key is written twice", "Remove one of them.")
		default:
			r.at[at] = placeOf(p.Key.GetToken())
			m[key] = r.value(at, p.Value, depth+1)
		}
	}
	return m
}
