// Package circuit compares logic circuits by their truth tables. It reads the
// exports of CircuitJS, in XML and as the older text. It must not know where the
// circuits come from.
package circuit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-eval/berth/verifiers/compare/internal/diff"
)

// Bounds of a circuit.
const (
	maxInputs = 6
	maxParts  = 5000
)

// Table is the truth table of a circuit: a column for each output. Bit r of a
// column is the output in row r, in which input i is bit i of r.
type Table struct {
	inputs  int
	columns []uint64
}

// Read returns the truth table of the circuit that a text describes. It fails if
// the circuit has no unique truth table with at most six inputs.
func Read(text string) (Table, error) {
	list, err := parse(text)
	if err != nil {
		return Table{}, err
	}
	return evaluate(list)
}

// Compare returns the share of the outputs of a circuit that another one has, and
// what differs. Inputs and outputs have no names, so the order of inputs with most
// matches counts.
func Compare(expected, predicted Table) (share float64, d diff.List) {
	if expected.inputs != predicted.inputs || len(expected.columns) != len(predicted.columns) {
		d.Add("it has %d inputs and %d outputs, expected %d and %d",
			predicted.inputs, len(predicted.columns), expected.inputs, len(expected.columns))
		return 0, d
	}
	want := slices.Sorted(slices.Values(expected.columns))
	most := 0
	orders(expected.inputs, func(order []int) bool {
		most = max(most, common(want, predicted.reordered(order)))
		return most < len(want)
	})
	if most < len(want) {
		d.Add("%d of %d outputs match their column of the truth table", most, len(want))
	}
	return float64(most) / float64(len(want)), d
}

// orders calls each with the orders of n things until it returns false.
func orders(n int, each func([]int) bool) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var from func(i int) bool
	from = func(i int) bool {
		if i == n {
			return each(order)
		}
		for j := i; j < n; j++ {
			order[i], order[j] = order[j], order[i]
			more := from(i + 1)
			order[i], order[j] = order[j], order[i]
			if !more {
				return false
			}
		}
		return true
	}
	from(0)
}

// reordered returns the sorted columns when the i-th input is order[i].
func (t *Table) reordered(order []int) []uint64 {
	rows := 1 << t.inputs
	to := make([]int, rows)
	for r := range to {
		for i, o := range order {
			to[r] |= (r >> i & 1) << o
		}
	}
	out := make([]uint64, len(t.columns))
	for k, column := range t.columns {
		for r, other := range to {
			out[k] |= (column >> other & 1) << r
		}
	}
	slices.Sort(out)
	return out
}

// common returns how many elements two sorted lists have in common, each counted
// as often as it is in both.
func common(a, b []uint64) (n int) {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			n++
			i++
			j++
		case a[i] < b[j]:
			i++
		default:
			j++
		}
	}
	return n
}

// driver sets a net to a function of others.
type driver struct {
	part   *part
	inputs []int // nets of its pins
	column uint64
	gate   bool // else the column is the value
}

// netlist is a circuit with its nets numbered.
type netlist struct {
	at      map[point]int
	parent  []int // of the union of nets that wires join
	drivers map[int][]*driver
	inputs  int
	outputs []int
	read    []int // nets that a pin reads
	values  map[int]uint64
	busy    map[int]bool
	mask    uint64
}

// net returns the net at a point.
func (n *netlist) net(p point) int {
	i, ok := n.at[p]
	if !ok {
		i = len(n.parent)
		n.at[p], n.parent = i, append(n.parent, i)
	}
	for n.parent[i] != i {
		n.parent[i] = n.parent[n.parent[i]]
		i = n.parent[i]
	}
	return i
}

// evaluate returns the truth table of the parts.
func evaluate(list []part) (t Table, err error) {
	n := netlist{at: map[point]int{}, drivers: map[int][]*driver{}, values: map[int]uint64{}, busy: map[int]bool{}}
	for i := range list {
		if list[i].kind == wire {
			n.parent[n.net(list[i].from)] = n.net(list[i].to)
		}
	}
	var switches, sources []*part
	for i := range list {
		switch p := &list[i]; p.kind {
		case toggle:
			switches = append(switches, p)
		case source:
			sources = append(sources, p)
		case sink:
			n.outputs = append(n.outputs, n.net(p.from))
		case ground, gate:
			n.add(p)
		default: // wires are joined already
		}
	}
	for _, p := range sources {
		n.input(p)
	}
	// A switch on a net that something else drives shows its value. Whether it
	// does must not depend on other switches.
	driven := make([]bool, len(switches))
	for i, p := range switches {
		driven[i] = len(n.drivers[n.net(p.from)]) > 0
	}
	for i, p := range switches {
		if driven[i] {
			n.outputs = append(n.outputs, n.net(p.from))
		} else {
			n.input(p)
		}
	}
	switch {
	case n.inputs == 0:
		return t, errors.New("it has no input")
	case len(n.outputs) == 0:
		return t, errors.New("it has no output")
	case n.inputs > maxInputs:
		return t, fmt.Errorf("it has %d inputs, at most %d are possible", n.inputs, maxInputs)
	}
	return n.table()
}

// add adds a part that drives a net and is not an input.
func (n *netlist) add(p *part) {
	d := &driver{part: p, gate: p.kind == gate}
	out := p.from
	if d.gate {
		out = p.to
		for _, pin := range p.pins() {
			net := n.net(pin)
			d.inputs, n.read = append(d.inputs, net), append(n.read, net)
		}
	}
	at := n.net(out)
	n.drivers[at] = append(n.drivers[at], d)
}

// input adds the next input of the circuit.
func (n *netlist) input(p *part) {
	d := &driver{part: p}
	if n.inputs < maxInputs {
		for r := range 64 {
			d.column |= uint64(r>>n.inputs&1) << r
		}
	}
	at := n.net(p.from)
	n.drivers[at] = append(n.drivers[at], d)
	n.inputs++
}

// table computes all nets, also those that no output needs, because any of them
// may show that the circuit is broken.
func (n *netlist) table() (t Table, err error) {
	n.mask = ^uint64(0) >> (64 - 1<<n.inputs)
	all := slices.Concat(n.read, n.outputs)
	for net := range n.drivers {
		all = append(all, net)
	}
	slices.SortFunc(all, cmp.Compare[int])
	for _, net := range slices.Compact(all) {
		if _, err = n.value(net); err != nil {
			return t, err
		}
	}
	t.inputs = n.inputs
	for _, net := range n.outputs {
		t.columns = append(t.columns, n.values[net])
	}
	return t, nil
}

// value returns the column of a net. Each level of its recursion is a part, so its
// depth is bounded.
func (n *netlist) value(net int) (uint64, error) {
	if v, ok := n.values[net]; ok {
		return v, nil
	}
	if n.busy[net] {
		return 0, errors.New("it has a cycle")
	}
	drivers := n.drivers[net]
	if len(drivers) == 0 {
		return 0, errors.New("a pin is connected to a net that nothing drives")
	}
	n.busy[net] = true
	var value uint64
	for i, d := range drivers {
		column := d.column
		if d.gate {
			in := make([]uint64, len(d.inputs))
			for k, other := range d.inputs {
				v, err := n.value(other)
				if err != nil {
					return 0, err
				}
				in[k] = v
			}
			column = d.part.output(in)
		}
		column &= n.mask
		if i > 0 && column != value {
			return 0, fmt.Errorf("two parts disagree about the net at %s", d.part.from)
		}
		value = column
	}
	n.busy[net] = false
	n.values[net] = value
	return value, nil
}
