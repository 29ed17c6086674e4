package harbor

import (
	"errors"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/berth-eval/berth/plugins/task"
)

// position is a place in a file; both begin at 1.
type position struct{ line, column int }

// document is a TOML file: its values, and where each of them stands.
type document struct {
	root map[string]any
	at   map[string]position // by path, such as "steps[0].agent.timeout_sec"
}

// parseTOML reads a whole file. On a syntax error the document is empty and
// the problem says where.
func parseTOML(file string, data []byte) (*document, *task.Problem) {
	d := &document{root: map[string]any{}, at: map[string]position{}}
	if err := toml.Unmarshal(data, &d.root); err != nil {
		p := &task.Problem{File: file, Severity: task.Error, Summary: "Not valid TOML", Detail: err.Error()}
		if de, ok := errors.AsType[*toml.DecodeError](err); ok {
			p.Line, p.Column = de.Position()
			p.Detail = strings.TrimPrefix(de.Error(), "toml: ") + "."
		}
		d.root = map[string]any{}
		return d, p
	}
	d.locate(data)
	return d, nil
}

// locate walks the syntax tree for the positions that decoding into a map
// loses. The file is known to be valid, so a key that was seen again goes on
// where it stands.
func (d *document) locate(data []byte) {
	var p unstable.Parser
	p.Reset(data)
	l := &locator{d: d, p: &p, elements: map[string]int{}}
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table:
			table = l.keys("", e.Key(), false)
		case unstable.ArrayTable:
			table = l.keys("", e.Key(), true)
		case unstable.KeyValue:
			l.keyValue(table, e)
		default:
		}
	}
}

type locator struct {
	d        *document
	p        *unstable.Parser
	elements map[string]int // how many elements an array of tables has so far
}

// keys follows a dotted key below base and returns the path it ends at. With
// element set the last key begins a new element of an array of tables.
func (l *locator) keys(base string, it unstable.Iterator, element bool) string {
	path := base
	for it.Next() {
		n := it.Node()
		path = join(path, string(n.Data))
		if _, seen := l.d.at[path]; !seen {
			s := l.p.Shape(n.Raw)
			l.d.at[path] = position{s.Start.Line, s.Start.Column}
		}
		if it.IsLast() && element {
			l.elements[path]++
			index := index(path, l.elements[path]-1)
			s := l.p.Shape(n.Raw)
			l.d.at[index] = position{s.Start.Line, s.Start.Column}
			return index
		}
		if n := l.elements[path]; n > 0 {
			path = index(path, n-1)
		}
	}
	return path
}

func (l *locator) keyValue(base string, e *unstable.Node) {
	path := l.keys(base, e.Key(), false)
	l.value(path, e.Value())
}

// value notes the positions of what stands below an inline table or an array.
func (l *locator) value(path string, v *unstable.Node) {
	it := v.Children()
	switch v.Kind {
	case unstable.InlineTable:
		for it.Next() {
			l.keyValue(path, it.Node())
		}
	case unstable.Array:
		for i := 0; it.Next(); i++ {
			el := index(path, i)
			if n := it.Node(); n.Raw.Length > 0 {
				s := l.p.Shape(n.Raw)
				l.d.at[el] = position{s.Start.Line, s.Start.Column}
			}
			l.value(el, it.Node())
		}
	default:
	}
}

// position of a path, or of the nearest thing around it.
func (d *document) position(path string) position {
	for path != "" {
		if p, ok := d.at[path]; ok {
			return p
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return position{}
}

func join(base, key string) string {
	if base == "" {
		return key
	}
	return base + "." + key
}

func index(base string, i int) string { return base + "[" + strconv.Itoa(i) + "]" }
