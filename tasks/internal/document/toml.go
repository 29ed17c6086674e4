package document

import (
	"errors"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/berth-eval/berth/plugins/task"
)

// TOML reads a file. The table has no values if the file cannot be read, and a
// problem says why.
func (r *Reader) TOML(data []byte) *Table {
	r.toml, r.at = true, map[string]Position{}
	root := map[string]any{}
	if err := toml.Unmarshal(data, &root); err != nil {
		at, detail := Position{}, err.Error()
		if de, ok := errors.AsType[*toml.DecodeError](err); ok {
			at.Line, at.Column = de.Position()
			detail = strings.TrimPrefix(de.Error(), "toml: ") + "."
		}
		r.report(task.Error, at, "", "Not valid TOML", detail)
		return r.Table(nil)
	}
	if deep := r.locate(data); deep != nil {
		clear(r.at)
		r.tooDeep(*deep)
		return r.Table(nil)
	}
	return r.Table(root)
}

// locate walks the syntax tree for the positions, which are lost when decoding
// into a map. The file is known to be valid. locate stops at a value that is
// nested too deeply and returns its position.
func (r *Reader) locate(data []byte) *Position {
	var p unstable.Parser
	p.Reset(data)
	l := &locator{at: r.at, lines: []int{0}, elements: map[string]int{}}
	for i, c := range data {
		if c == '\n' {
			l.lines = append(l.lines, i+1)
		}
	}
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table:
			table = l.keys("", e.Key(), false)
		case unstable.ArrayTable:
			table = l.keys("", e.Key(), true)
		case unstable.KeyValue:
			l.keyValue(table, e, 0)
		default:
		}
		if l.deep != nil {
			break
		}
	}
	return l.deep
}

type locator struct {
	at       map[string]Position
	lines    []int          // where each line begins; the parser would count them for every key
	elements map[string]int // how many elements an array of tables has so far
	deep     *Position      // the first place that is nested too deeply
}

// place returns the position where a range begins.
func (l *locator) place(r unstable.Range) Position {
	line, found := slices.BinarySearch(l.lines, int(r.Offset))
	if !found {
		line--
	}
	return Position{line + 1, int(r.Offset) - l.lines[line] + 1}
}

// tooDeep records a position at a depth that is not allowed.
func (l *locator) tooDeep(depth int, r unstable.Range) bool {
	if depth > maxNesting && l.deep == nil {
		l.deep = new(l.place(r))
	}
	return l.deep != nil
}

// keys follows a dotted key below base and returns the path it ends at. With
// element set the last key begins a new element of an array of tables.
func (l *locator) keys(base string, it unstable.Iterator, element bool) string {
	path := base
	for depth := 1; it.Next(); depth++ {
		n := it.Node()
		if l.tooDeep(depth, n.Raw) {
			return path
		}
		path = Join(path, string(n.Data))
		if _, seen := l.at[path]; !seen {
			l.at[path] = l.place(n.Raw)
		}
		if it.IsLast() && element {
			l.elements[path]++
			index := Index(path, l.elements[path]-1)
			l.at[index] = l.place(n.Raw)
			return index
		}
		if n := l.elements[path]; n > 0 {
			path = Index(path, n-1)
		}
	}
	return path
}

func (l *locator) keyValue(base string, e *unstable.Node, depth int) {
	path := l.keys(base, e.Key(), false)
	l.value(path, e.Value(), depth)
}

// value records the positions below an inline table or an array.
func (l *locator) value(path string, v *unstable.Node, depth int) {
	if l.tooDeep(depth, v.Raw) {
		return
	}
	it := v.Children()
	switch v.Kind {
	case unstable.InlineTable:
		for it.Next() {
			l.keyValue(path, it.Node(), depth+1)
		}
	case unstable.Array:
		for i := 0; it.Next(); i++ {
			el := Index(path, i)
			if n := it.Node(); n.Raw.Length > 0 {
				l.at[el] = l.place(n.Raw)
			}
			l.value(el, it.Node(), depth+1)
		}
	default:
	}
}
