package page

import (
	"context"
	"strings"
)

// snapshot is the DOM of a page with all its frames, at one moment. What is in a
// shadow root is a child of its host.
type snapshot struct {
	strings []string
	docs    []document
	bid     func(node int64) string
}

// rawSnapshot is the reply of DOMSnapshot.captureSnapshot. Texts are indices into
// Strings; below 0 there is none.
type rawSnapshot struct {
	Documents []document `json:"documents"`
	Strings   []string   `json:"strings"`
}

type document struct {
	Frame   int     `json:"frameId"`
	ScrollX float64 `json:"scrollOffsetX"`
	ScrollY float64 `json:"scrollOffsetY"`
	Nodes   struct {
		Parent    []int   `json:"parentIndex"`
		Type      []int   `json:"nodeType"`
		Name      []int   `json:"nodeName"`
		Value     []int   `json:"nodeValue"`
		Backend   []int64 `json:"backendNodeId"`
		Attrs     [][]int `json:"attributes"`
		Content   rare    `json:"contentDocumentIndex"`
		Clickable flags   `json:"isClickable"`
	} `json:"nodes"`
	Layout struct {
		Node   []int       `json:"nodeIndex"`
		Styles [][]int     `json:"styles"`
		Bounds [][]float64 `json:"bounds"`
		Client [][]float64 `json:"clientRects"`
	} `json:"layout"`

	layout  map[int]int // by node
	content map[int]int // document of an iframe, by node
	x, y    float64     // where its origin is in the viewport
}

// rare is a value of a few nodes.
type rare struct {
	Index []int `json:"index"`
	Value []int `json:"value"`
}

type flags struct {
	Index []int `json:"index"`
}

func (r *rare) byNode() map[int]int {
	all := map[int]int{}
	for i, n := range r.Index {
		if i < len(r.Value) {
			all[n] = r.Value[i]
		}
	}
	return all
}

func (f *flags) byNode() map[int]bool {
	all := map[int]bool{}
	for _, n := range f.Index {
		all[n] = true
	}
	return all
}

// The styles that are asked for, in this order.
var styles = []string{"display", "visibility", "opacity", "cursor", "pointer-events"}

const (
	styleVisibility = 1
	styleOpacity    = 2
	styleCursor     = 3
)

// elementNode is the type of elements in the DOM.
const elementNode = 1

// snapshot reads the DOM of a page.
func (b *Browser) snapshot(ctx context.Context, t *tab) (*snapshot, error) {
	var raw rawSnapshot
	if err := b.do(ctx, t, "DOMSnapshot.captureSnapshot", object{"computedStyles": styles, "includeDOMRects": true}, &raw); err != nil {
		return nil, err
	}
	s := &snapshot{strings: raw.Strings, docs: raw.Documents, bid: func(node int64) string { return b.bid(t, node) }}
	for i := range s.docs {
		d := &s.docs[i]
		d.layout, d.content = map[int]int{}, d.Nodes.Content.byNode()
		for at, node := range d.Layout.Node {
			if _, first := d.layout[node]; !first {
				d.layout[node] = at
			}
		}
	}
	if len(s.docs) > 0 {
		s.place(0, -s.docs[0].ScrollX, -s.docs[0].ScrollY, 0)
	}
	return s, nil
}

// place computes where documents are in the viewport: bounds of nodes are
// relative to their document.
func (s *snapshot) place(i int, x, y float64, depth int) {
	if i < 0 || i >= len(s.docs) || depth > maxFrames {
		return
	}
	d := &s.docs[i]
	d.x, d.y = x, y
	for node, inner := range d.content {
		if inner <= 0 || inner >= len(s.docs) {
			continue
		}
		box, ok := d.box(node)
		if !ok {
			continue
		}
		if at := d.layout[node]; at < len(d.Layout.Client) && len(d.Layout.Client[at]) == 4 { // inside its border
			box.X += d.Layout.Client[at][0]
			box.Y += d.Layout.Client[at][1]
		}
		s.place(inner, box.X-s.docs[inner].ScrollX, box.Y-s.docs[inner].ScrollY, depth+1)
	}
}

// maxFrames is how deep frames may lie in each other.
const maxFrames = 32

// Box is a rectangle in the viewport, in CSS pixels.
type Box struct {
	X, Y, Width, Height float64
}

// box returns where a node is; false: it is not laid out.
func (d *document) box(node int) (Box, bool) {
	at, ok := d.layout[node]
	if !ok || at >= len(d.Layout.Bounds) || len(d.Layout.Bounds[at]) != 4 {
		return Box{}, false
	}
	r := d.Layout.Bounds[at]
	return Box{r[0] + d.x, r[1] + d.y, r[2], r[3]}, true
}

// text returns a text of the snapshot.
func (s *snapshot) text(i int) string {
	if i < 0 || i >= len(s.strings) {
		return ""
	}
	return s.strings[i]
}

// style returns a computed style of a node.
func (s *snapshot) style(d *document, node, which int) string {
	at, ok := d.layout[node]
	if !ok || at >= len(d.Layout.Styles) || which >= len(d.Layout.Styles[at]) {
		return ""
	}
	return s.text(d.Layout.Styles[at][which])
}

// Element is what an observation says of an element.
type Element struct {
	Box       *[4]float64 `json:"box"`     // x, y, width, height in the viewport; null: it is not laid out
	Visible   float64     `json:"visible"` // the share of it that lies in the viewport; 0: it is not seen
	Clickable bool        `json:"clickable"`
	Mark      bool        `json:"mark"` // it belongs to the set of marks: what an agent would act on
}

// elements returns the elements of all documents by bid.
func (s *snapshot) elements(width, height int) map[string]Element {
	all := map[string]Element{}
	for i := range s.docs {
		d := &s.docs[i]
		clickable := d.Nodes.Clickable.byNode()
		for node, kind := range d.Nodes.Type {
			if kind != elementNode || node >= len(d.Nodes.Backend) {
				continue
			}
			e := Element{Clickable: clickable[node]}
			if box, ok := d.box(node); ok {
				e.Box = &[4]float64{box.X, box.Y, box.Width, box.Height}
				if s.style(d, node, styleVisibility) != "hidden" && s.style(d, node, styleOpacity) != "0" {
					e.Visible = box.within(float64(width), float64(height))
				}
			}
			e.Mark = e.Visible >= markVisible && e.Box[2]*e.Box[3] >= markArea && (interactive[s.tag(d, node)] || interactiveRole[s.attr(d, node, "role")] ||
				e.Clickable && s.style(d, node, styleCursor) == "pointer")
			all[s.bid(d.Nodes.Backend[node])] = e
		}
	}
	return all
}

// An element belongs to the set of marks if at least this share of it is in the
// viewport, and it has this area in square pixels.
const (
	markVisible = 0.5
	markArea    = 20
)

var interactive = map[string]bool{
	"a": true, "button": true, "input": true, "select": true, "textarea": true, "summary": true, "option": true, "label": true, "video": true, "audio": true,
}

var interactiveRole = map[string]bool{
	"button": true, "link": true, "checkbox": true, "radio": true, "tab": true, "menuitem": true, "option": true, "switch": true, "slider": true,
	"textbox": true, "combobox": true, "searchbox": true, "spinbutton": true, "treeitem": true, "menuitemcheckbox": true, "menuitemradio": true,
}

// within returns the share of a box that lies in a viewport.
func (r Box) within(width, height float64) float64 {
	if r.Width <= 0 || r.Height <= 0 {
		return 0
	}
	w := min(r.X+r.Width, width) - max(r.X, 0)
	h := min(r.Y+r.Height, height) - max(r.Y, 0)
	if w <= 0 || h <= 0 {
		return 0
	}
	return w * h / (r.Width * r.Height)
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
