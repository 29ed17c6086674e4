package harbor

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/berth-eval/berth/plugins/task"
)

// position is a place in a file; both begin at 1.
type position struct{ line, column int }

// document is a TOML file: its values and their positions.
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
	if deep := d.locate(data); deep != nil {
		return &document{root: map[string]any{}, at: map[string]position{}}, &task.Problem{
			File: file, Line: deep.line, Column: deep.column, Severity: task.Error, Summary: "Nested too deeply",
			Detail: fmt.Sprintf("There are more than %d levels here, and nothing that a task says needs ten.", maxNesting),
		}
	}
	return d, nil
}

// maxNesting is how deep tables and lists may be nested. The memory for their
// paths grows with its square.
const maxNesting = 64

// locate walks the syntax tree for the positions, which are lost when decoding
// into a map. The file is known to be valid. locate stops at a value that is
// nested too deeply and returns its position.
func (d *document) locate(data []byte) *position {
	var p unstable.Parser
	p.Reset(data)
	l := &locator{d: d, lines: []int{0}, elements: map[string]int{}}
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
	d        *document
	lines    []int          // where each line begins; the parser would count them for every key
	elements map[string]int // how many elements an array of tables has so far
	deep     *position      // the first place that is nested too deeply
}

// place returns the position where a range begins.
func (l *locator) place(r unstable.Range) position {
	line, found := slices.BinarySearch(l.lines, int(r.Offset))
	if !found {
		line--
	}
	return position{line + 1, int(r.Offset) - l.lines[line] + 1}
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
		path = join(path, string(n.Data))
		if _, seen := l.d.at[path]; !seen {
			l.d.at[path] = l.place(n.Raw)
		}
		if it.IsLast() && element {
			l.elements[path]++
			index := index(path, l.elements[path]-1)
			l.d.at[index] = l.place(n.Raw)
			return index
		}
		if n := l.elements[path]; n > 0 {
			path = index(path, n-1)
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
			el := index(path, i)
			if n := it.Node(); n.Raw.Length > 0 {
				l.d.at[el] = l.place(n.Raw)
			}
			l.value(el, it.Node(), depth+1)
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
