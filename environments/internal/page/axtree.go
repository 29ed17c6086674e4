package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/environments/internal/cdp"
)

// axNode is a node of the accessibility tree of a frame.
type axNode struct {
	ID         string       `json:"nodeId"`
	Ignored    bool         `json:"ignored"`
	Role       *axValue     `json:"role"`
	Name       *axValue     `json:"name"`
	Value      *axValue     `json:"value"`
	Properties []axProperty `json:"properties"`
	Children   []string     `json:"childIds"`
	Parent     string       `json:"parentId"`
	Backend    int64        `json:"backendDOMNodeId"`
}

type axValue struct {
	Value json.RawMessage `json:"value"`
}

type axProperty struct {
	Name  string  `json:"name"`
	Value axValue `json:"value"`
}

// axFrame is the tree of one frame.
type axFrame struct {
	nodes map[string]*axNode
	roots []string
}

// axTree returns the accessibility tree of a page as text, a node a line.
func (b *Browser) axTree(ctx context.Context, t *tab, limit int) (string, error) {
	var tree struct {
		Frames frameTree `json:"frameTree"`
	}
	if err := b.do(ctx, t, "Page.getFrameTree", nil, &tree); err != nil {
		return "", err
	}
	w := &axWriter{frames: map[int64]*axFrame{}, limit: limit, bid: func(node int64) string { return b.bid(t, node) }}
	var main *axFrame
	for _, id := range tree.Frames.ids(0) {
		f, owner, err := b.axFrame(ctx, t, id)
		if refused, ok := errors.AsType[*cdp.Error](err); ok && id != tree.Frames.Frame.ID && refused != nil {
			continue // the frame was removed meanwhile
		}
		if err != nil {
			return "", err
		}
		if main == nil {
			main = f
		}
		w.frames[owner] = f
	}
	if main != nil {
		for _, root := range main.roots {
			w.node(main, root, place{})
		}
	}
	return w.out.String(), nil
}

type frameTree struct {
	Frame struct {
		ID string `json:"id"`
	} `json:"frame"`
	Children []frameTree `json:"childFrames"`
}

// ids returns the frames, parents first.
func (f *frameTree) ids(depth int) []string {
	all := []string{f.Frame.ID}
	for i := range f.Children {
		if depth < maxFrames {
			all = append(all, f.Children[i].ids(depth+1)...)
		}
	}
	return all
}

// axFrame reads the tree of a frame. owner is the node of the element that holds
// the frame; 0: none.
func (b *Browser) axFrame(ctx context.Context, t *tab, id string) (_ *axFrame, owner int64, err error) {
	var got struct {
		Nodes []*axNode `json:"nodes"`
	}
	if err = b.do(ctx, t, "Accessibility.getFullAXTree", object{"frameId": id}, &got); err != nil {
		return nil, 0, err
	}
	f := newAXFrame(got.Nodes)
	var held struct {
		Backend int64 `json:"backendNodeId"`
	}
	err = b.do(ctx, t, "DOM.getFrameOwner", object{"frameId": id}, &held)
	if _, ok := errors.AsType[*cdp.Error](err); ok { // the main frame has none
		err = nil
	}
	return f, held.Backend, err
}

func newAXFrame(nodes []*axNode) *axFrame {
	f := &axFrame{nodes: map[string]*axNode{}}
	for _, n := range nodes {
		if n == nil { // the browser runs in the sandbox: it may say anything
			continue
		}
		f.nodes[n.ID] = n
		if n.Parent == "" {
			f.roots = append(f.roots, n.ID)
		}
	}
	return f
}

type axWriter struct {
	frames map[int64]*axFrame // by the node of the element that holds it
	bid    func(node int64) string
	limit  int
	cut    bool
	out    strings.Builder
}

// place is where a node is written.
type place struct {
	depth int    // of the printed line
	deep  int    // of the node
	named string // the name of the parent that was printed
}

// The properties that say nothing to an agent, and those that are written without
// a value, when they are true.
var (
	axSilent = map[string]bool{"editable": true, "readonly": true, "level": true, "settable": true, "multiline": true, "invalid": true, "focusable": true}
	axBare   = map[string]bool{"required": true, "focused": true, "atomic": true}
)

// maxDepth bounds how deep trees are followed, in nodes.
const maxDepth = 512

func (w *axWriter) node(f *axFrame, id string, p place) {
	n := f.nodes[id]
	if n == nil || p.deep > maxDepth || w.cut {
		return
	}
	delete(f.nodes, id) // a tree of a page has no circles, and this makes sure
	inner := place{depth: p.depth, deep: p.deep + 1, named: p.named}
	if line, name, ok := w.text(n, p.named); ok {
		w.line(p.depth, line)
		inner.depth, inner.named = p.depth+1, name
	}
	for _, child := range n.Children {
		w.node(f, child, inner)
	}
	if held := w.frames[n.Backend]; n.Backend != 0 && held != nil && held != f {
		for _, root := range held.roots {
			w.node(held, root, inner)
		}
	}
}

// text returns the line of a node; false: it has none, and its children take its
// place.
func (w *axWriter) text(n *axNode, parent string) (line, name string, ok bool) {
	role := n.Role.text()
	if n.Ignored || role == "" || role == "none" || role == "LineBreak" || role == "InlineTextBox" {
		return "", "", false
	}
	name = strings.TrimSpace(n.Name.text())
	if role == "StaticText" && (name == "" || strings.Contains(parent, name)) {
		return "", "", false
	}
	var b strings.Builder
	if n.Backend != 0 && role != "StaticText" {
		fmt.Fprintf(&b, "[%s] ", w.bid(n.Backend))
	}
	fmt.Fprintf(&b, "%s %s", role, quote(name))
	if n.Value != nil && len(n.Value.Value) > 0 {
		fmt.Fprintf(&b, " value=%s", n.Value.literal())
	}
	said := false
	for _, p := range n.Properties {
		switch {
		case axSilent[p.Name] || len(p.Value.Value) == 0:
			continue
		case axBare[p.Name]:
			if string(p.Value.Value) != "true" {
				continue
			}
			b.WriteString(", " + p.Name)
		default:
			fmt.Fprintf(&b, ", %s=%s", p.Name, p.Value.literal())
		}
		said = true
	}
	if role == "generic" && !said {
		return "", "", false
	}
	return b.String(), name, true
}

func (v *axValue) text() (s string) {
	if v == nil || json.Unmarshal(v.Value, &s) != nil {
		return ""
	}
	return s
}

// literal returns a value as Python writes it.
func (v *axValue) literal() string {
	var s string
	switch text := string(v.Value); {
	case text == "true":
		return "True"
	case text == "false":
		return "False"
	case json.Unmarshal(v.Value, &s) == nil:
		return quote(s)
	default:
		return text
	}
}

// quote writes a text in single quotes.
func quote(s string) string {
	q := strconv.Quote(s)
	return "'" + strings.ReplaceAll(strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`), `'`, `\'`) + "'"
}

func (w *axWriter) line(depth int, text string) {
	if w.out.Len()+depth+len(text) > w.limit {
		if !w.cut {
			w.out.WriteString("(the rest is left out)\n")
		}
		w.cut = true
		return
	}
	w.out.WriteString(strings.Repeat("\t", depth) + text + "\n")
}
