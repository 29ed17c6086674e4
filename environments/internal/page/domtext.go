package page

import (
	"fmt"
	"html"
	"strings"
)

// domText returns the DOM as indented HTML. Each element has its bid, and what
// elements say of it: clickable, visible, mark, center, box.
func (s *snapshot) domText(elements map[string]Element, limit int) string {
	w := &domWriter{s: s, elements: elements, limit: limit}
	if len(s.docs) > 0 {
		w.document(0, 0)
	}
	return w.out.String()
}

type domWriter struct {
	s        *snapshot
	elements map[string]Element
	limit    int // bytes
	cut      bool
	out      strings.Builder
}

// left out are elements that show nothing.
var leftOut = map[string]bool{"script": true, "style": true, "noscript": true, "template": true, "link": true, "meta": true}

func (w *domWriter) document(i, depth int) {
	if i < 0 || i >= len(w.s.docs) || depth > maxDepth {
		return
	}
	d := &w.s.docs[i]
	children := map[int][]int{}
	for node, parent := range d.Nodes.Parent {
		children[parent] = append(children[parent], node)
	}
	for _, root := range children[-1] {
		w.node(d, children, root, depth)
	}
}

// maxDepth bounds how deep trees are followed, in nodes.
const maxDepth = 512

func (w *domWriter) node(d *document, children map[int][]int, node, depth int) {
	if depth > maxDepth || w.cut || node >= len(d.Nodes.Type) || node >= len(d.Nodes.Name) {
		return
	}
	name := w.s.tag(d, node)
	inner := depth
	switch d.Nodes.Type[node] {
	case textNode:
		if text := strings.Join(strings.Fields(w.s.text(at(d.Nodes.Value, node))), " "); text != "" {
			w.line(depth, html.EscapeString(text))
		}
		return
	case elementNode:
		if leftOut[name] || strings.HasPrefix(name, "::") {
			return
		}
		w.line(depth, "<"+name+w.attributes(d, node)+">")
		inner++
	case documentNode:
	default:
		return
	}
	for _, child := range children[node] {
		w.node(d, children, child, inner)
	}
	if content, ok := d.content[node]; ok && content > 0 {
		w.document(content, inner)
	}
	if d.Nodes.Type[node] == elementNode && (len(children[node]) > 0 || d.content[node] > 0) {
		w.line(depth, "</"+name+">")
	}
}

func (w *domWriter) attributes(d *document, node int) string {
	var b strings.Builder
	id := w.s.bid(d.Nodes.Backend[node])
	fmt.Fprintf(&b, " bid=\"%s\"", id)
	e := w.elements[id]
	for _, f := range []struct {
		name string
		on   bool
	}{{"clickable", e.Clickable}, {"visible", e.Visible > 0}, {"som", e.Mark}} {
		if f.on {
			b.WriteString(" " + f.name)
		}
	}
	if e.Visible > 0 {
		r := e.Box
		fmt.Fprintf(&b, " center=\"(%.0f,%.0f)\" box=\"(%.0f,%.0f,%.0f,%.0f)\"", r[0]+r[2]/2, r[1]+r[3]/2, r[0], r[1], r[2], r[3])
	}
	if node < len(d.Nodes.Attrs) {
		list := d.Nodes.Attrs[node]
		for i := 0; i+1 < len(list); i += 2 {
			if value := w.s.text(list[i+1]); value != "" {
				fmt.Fprintf(&b, " %s=\"%s\"", w.s.text(list[i]), html.EscapeString(value))
			} else {
				b.WriteString(" " + w.s.text(list[i]))
			}
		}
	}
	return b.String()
}

func (w *domWriter) line(depth int, text string) {
	if w.out.Len()+depth+len(text) > w.limit {
		if !w.cut {
			w.out.WriteString("<!-- the rest is left out -->\n")
		}
		w.cut = true
		return
	}
	w.out.WriteString(strings.Repeat(" ", depth) + text + "\n")
}

// tag returns the name of an element in lower case.
func (s *snapshot) tag(d *document, node int) string {
	return strings.ToLower(s.text(at(d.Nodes.Name, node)))
}

// attr returns an attribute of an element; empty: it has none.
func (s *snapshot) attr(d *document, node int, name string) string {
	if node >= len(d.Nodes.Attrs) {
		return ""
	}
	list := d.Nodes.Attrs[node]
	for i := 0; i+1 < len(list); i += 2 {
		if s.text(list[i]) == name {
			return s.text(list[i+1])
		}
	}
	return ""
}

func at(list []int, i int) int {
	if i >= len(list) {
		return -1
	}
	return list[i]
}
