// Package graph compares workflows: nodes with data, and edges between them. Ids
// and positions of nodes do not count. It must not know where the workflows come
// from.
package graph

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/berth-eval/berth/verifiers/compare/internal/diff"
	"github.com/berth-eval/berth/verifiers/compare/internal/document"
)

// maxNodes and maxEdges are how many a workflow may have.
const (
	maxNodes = 1000
	maxEdges = 20_000
)

// node is one node of a workflow.
type node struct {
	id, kind string
	data     document.Object
}

// handle is where an edge leaves its source. An edge may have none, which is not
// the same as one of any name.
type handle struct {
	name string
	none bool
}

// edge goes from one node to another, both as indices. -1 is a node that is not
// there.
type edge struct{ source, target int }

// workflow is one side of a comparison.
type workflow struct {
	nodes []node
	edges map[edge][]handle
	count int // of edges
}

// Compare returns what differs between two workflows. Fails with
// document.ErrTruth if the truth is not a workflow.
func Compare(truth, prediction any) (d diff.List, err error) {
	want, faults := read(truth)
	if !faults.Empty() {
		return d, document.BadTruth("%s", faults.First())
	}
	if len(want.nodes) == 0 {
		d.Add("the ground truth has no nodes, which nothing equals")
		return d, nil
	}
	got, faults := read(prediction)
	d.Append(faults)
	if !faults.Empty() {
		return d, nil
	}
	if counts(&d, want, got); !d.Empty() {
		return d, nil
	}
	c := costs(want, got)
	pairs := diff.Pairs(c)
	for t, p := range pairs {
		if p < 0 {
			d.Add("node %s (%s) has no counterpart", want.nodes[t].id, want.nodes[t].kind)
		} else if c[t][p] > 0 {
			differing(&d, &want.nodes[t], &got.nodes[p])
		}
	}
	if d.Empty() {
		wiring(&d, want, got, pairs)
	}
	return d, nil
}

// read returns the workflow in a document.
func read(v any) (w workflow, faults diff.List) {
	graph := v
	if inner := document.Get(v, "graph"); inner != nil {
		graph = inner
	}
	nodes, ok := document.Get(graph, "nodes").(document.List)
	if !ok {
		faults.Add("it has no list of nodes: %s", document.Show(v))
		return w, faults
	}
	edges, ok := document.Get(graph, "edges").(document.List)
	if !ok && document.Get(graph, "edges") != nil {
		faults.Add("edges is not a list: %s", document.Show(document.Get(graph, "edges")))
	}
	if len(nodes) > maxNodes || len(edges) > maxEdges {
		faults.Add("it has %d nodes and %d edges, at most %d and %d are compared", len(nodes), len(edges), maxNodes, maxEdges)
		return w, faults
	}
	index := map[string]int{}
	for i, n := range nodes {
		id, okID := identity(document.Get(n, "id"))
		kind, okKind := document.Get(n, "type").(string)
		if !okID || !okKind {
			faults.Add("node %d has no id or no type: %s", i, document.Show(n))
			continue
		}
		if _, twice := index[id]; twice {
			faults.Add("two nodes have the id %s", id)
		}
		index[id] = len(w.nodes)
		data, _ := document.Get(n, "data").(document.Object)
		w.nodes = append(w.nodes, node{id: id, kind: strings.TrimSpace(kind), data: data})
	}
	w.edges = map[edge][]handle{}
	end := func(e any, key string) int {
		id, _ := identity(document.Get(e, key))
		if i, ok := index[id]; ok {
			return i
		}
		faults.Add("an edge has an unknown %s: %s", key, document.Show(e))
		return -1
	}
	for _, e := range edges {
		h := handle{none: document.Get(e, "sourceHandle") == nil}
		h.name, _ = identity(document.Get(e, "sourceHandle"))
		at := edge{end(e, "source"), end(e, "target")}
		w.edges[at] = append(w.edges[at], h)
		w.count++
	}
	return w, faults
}

// identity returns the text of an id or a handle: a string or a number.
func identity(v any) (string, bool) {
	if text, ok := v.(string); ok {
		return strings.TrimSpace(text), true
	}
	if v == nil {
		return "", false
	}
	return document.Text(v)
}

// counts compares the numbers of nodes of each type. Nothing else is compared if
// they differ, so the work is bounded by the ground truth.
func counts(d *diff.List, want, got workflow) {
	number := map[string]int{}
	for _, n := range want.nodes {
		number[n.kind]++
	}
	for _, n := range got.nodes {
		number[n.kind]--
	}
	for _, kind := range slices.Sorted(maps.Keys(number)) {
		switch n := number[kind]; {
		case n > 0:
			d.Add("%d nodes of type %s are missing", n, document.Show(kind))
		case n < 0:
			d.Add("%d nodes of type %s are not expected", -n, document.Show(kind))
		}
	}
}

// costs returns, for each expected and each predicted node, how many keys of the
// expected data differ; -1: the types do.
func costs(want, got workflow) [][]int {
	c := make([][]int, len(want.nodes))
	for t := range want.nodes {
		c[t] = make([]int, len(got.nodes))
		for p := range got.nodes {
			c[t][p] = -1
			if want.nodes[t].kind != got.nodes[p].kind {
				continue
			}
			c[t][p] = 0
			for key, value := range want.nodes[t].data {
				if a, ok := got.nodes[p].data[key]; !ok || !same(a, value, key) {
					c[t][p]++
				}
			}
		}
	}
	return c
}

// differing adds the keys of a node's data that differ.
func differing(d *diff.List, t, p *node) {
	for _, key := range document.Keys(t.data) {
		a, ok := p.data[key]
		switch {
		case !ok:
			d.Add("node %s (%s): %s is missing, expected %s", p.id, p.kind, key, document.Show(t.data[key]))
		case !same(a, t.data[key], key):
			d.Add("node %s (%s): %s is %s, expected %s", p.id, p.kind, key, document.Show(a), document.Show(t.data[key]))
		}
	}
}

// wiring compares the edges of paired nodes.
func wiring(d *diff.List, want, got workflow, pairs []int) {
	back := make([]int, len(pairs))
	for t, p := range pairs {
		back[p] = t
	}
	name := func(e edge) string { return want.nodes[e.source].id + " → " + want.nodes[e.target].id }
	mapped := map[edge][]handle{}
	for e, handles := range got.edges {
		mapped[edge{back[e.source], back[e.target]}] = handles
	}
	both := maps.Clone(want.edges)
	maps.Copy(both, mapped)
	for _, e := range slices.SortedFunc(maps.Keys(both), func(a, b edge) int { return cmp.Or(a.source-b.source, a.target-b.target) }) {
		missing, extra := unmatched(want.edges[e], mapped[e])
		for _, h := range missing {
			d.Add("the edge %s%s is missing", name(e), h)
		}
		for _, h := range extra {
			d.Add("the edge %s%s is not expected", name(e), h)
		}
	}
}

// String names a handle in a difference.
func (h handle) String() string {
	if h.none {
		return " without a handle"
	}
	return " from " + document.Show(h.name)
}

// standard are the handles that only match themselves. Others stand for a case of
// a switch, which some exports call just "case".
var standard = []string{"default", "onTrue", "onFalse", "trigger"}

// unmatched pairs the handles of the edges between the same two nodes, and returns
// those without a counterpart.
func unmatched(want, got []handle) (missing, extra []handle) {
	left := map[handle]int{}
	for _, h := range got {
		left[h]++
	}
	for _, h := range want {
		if left[h] > 0 {
			left[h]--
		} else {
			missing = append(missing, h)
		}
	}
	anyCase := handle{name: "case"}
	missing = slices.DeleteFunc(missing, func(h handle) bool {
		if h.none || slices.Contains(standard, h.name) || left[anyCase] == 0 {
			return false
		}
		left[anyCase]--
		return true
	})
	for _, h := range got {
		if left[h] > 0 {
			left[h]--
			extra = append(extra, h)
		}
	}
	return missing, extra
}
