package page

import "strconv"

// names are the bids of elements: numbers in the order in which elements were seen
// since the last Reset. A bid stays that of its element, in whatever frame or
// shadow root, as long as the element lives, and is not given again.
type names struct {
	of    map[seenNode]string
	nodes map[string]seenNode
}

// seenNode is a node of a page: the browser's own number of it, which no other
// node of the page has as long as it lives.
type seenNode struct {
	target string
	node   int64
}

func newNames() names { return names{map[seenNode]string{}, map[string]seenNode{}} }

// bid returns the bid of a node of a page.
func (b *Browser) bid(t *tab, node int64) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := seenNode{t.target, node}
	id, ok := b.names.of[k]
	if !ok {
		id = strconv.Itoa(len(b.names.of) + 1)
		b.names.of[k], b.names.nodes[id] = id, k
	}
	return id
}

// node returns the node of a bid on a page.
func (b *Browser) node(t *tab, bid string) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k, ok := b.names.nodes[bid]
	if !ok || k.target != t.target {
		return 0, refuse("ValueError", "there is no element with bid %q on the page", cut(bid))
	}
	return k.node, nil
}
