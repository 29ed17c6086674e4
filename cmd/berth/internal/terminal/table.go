package terminal

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Table is columns of text. A cell may be painted; what else it holds does not
// steer the terminal. Where the table is wider than the terminal, its cells are
// wrapped; elsewhere each row is one line.
type Table struct {
	Head  []string
	Right []bool // columns that are aligned to the right
	// Below puts the last column under its row where the table is too wide, and
	// Above so many of the first ones over it.
	Below bool
	Above int
	rows  [][]string
}

// Row adds a row.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Len is the number of rows.
func (t *Table) Len() int { return len(t.rows) }

const (
	gap      = 2 // columns between two cells
	narrow   = 8 // columns that a cell of text keeps
	indented = 4 // columns before what stands below a row
)

// Write writes the table, with the head in bold on a terminal.
func (t *Table) Write(p *Printer) {
	for _, r := range t.rows {
		for i, c := range r {
			r[i] = steady(c, true)
		}
	}
	first, last := 0, len(t.Head)
	widths := t.widths(first, last)
	if p.Width > 0 && total(widths) > p.Width {
		first = t.Above
		if t.Below {
			last--
		}
		widths = t.widths(first, last)
	}
	t.shrink(widths, p.Width, first)
	t.line(p, t.Head[:last], widths, Bold)
	for _, r := range t.rows {
		t.line(p, r[:min(last, len(r))], widths, Plain)
		if len(r) > last && r[last] != "" {
			fmt.Fprintln(p.Out, strings.Repeat(" ", indented)+Wrap(r[last], p.Width, indented))
		}
	}
}

// widths are those of some of the columns as they are.
func (t *Table) widths(first, last int) []int {
	widths := make([]int, last-first)
	for _, r := range append([][]string{t.Head}, t.rows...) {
		for i, c := range r[first:min(last, len(r))] {
			widths[i] = max(widths[i], ansi.StringWidth(c))
		}
	}
	return widths
}

func total(widths []int) int {
	sum := gap * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

// shrink takes columns from the widest until the table fits. A column that is
// aligned to the right keeps its numbers whole: only its head is wrapped.
func (t *Table) shrink(widths []int, width, first int) {
	if width == 0 {
		return
	}
	least := make([]int, len(widths))
	for i := range widths {
		least[i] = narrow
		if !t.right(first + i) {
			continue
		}
		least[i] = 0
		for word := range strings.FieldsSeq(t.Head[first+i]) {
			least[i] = max(least[i], ansi.StringWidth(word))
		}
		for _, r := range t.rows {
			least[i] = max(least[i], ansi.StringWidth(r[first+i]))
		}
	}
	for total(widths) > width {
		widest := -1
		for i, w := range widths {
			if w > least[i] && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

func (t *Table) right(column int) bool { return column < len(t.Right) && t.Right[column] }

// line writes one row, on as many lines as its longest cell needs. The cells that
// widths lacks come first, on their own line.
func (t *Table) line(p *Printer, cells []string, widths []int, st Style) {
	first := max(0, len(cells)-len(widths))
	if first > 0 {
		fmt.Fprintln(p.Out, Paint(p.Color, st, Wrap(strings.Join(cells[:first], "  "), p.Width, indented)))
	}
	cells = cells[first:]
	parts, height := make([][]string, len(cells)), 1
	for i, c := range cells {
		parts[i] = []string{c}
		if ansi.StringWidth(c) > widths[i] {
			parts[i] = strings.Split(ansi.Wrap(c, widths[i], "/"), "\n")
		}
		height = max(height, len(parts[i]))
	}
	for n := range height {
		var b strings.Builder
		for i := range cells {
			if i > 0 {
				b.WriteString(strings.Repeat(" ", gap))
			}
			c := ""
			if n < len(parts[i]) {
				c = parts[i][n]
			}
			pad := strings.Repeat(" ", max(0, widths[i]-ansi.StringWidth(c)))
			c = Paint(p.Color, st, c)
			if t.right(first + i) {
				b.WriteString(pad + c)
			} else {
				b.WriteString(c + pad)
			}
		}
		fmt.Fprintln(p.Out, strings.TrimRight(b.String(), " "))
	}
}
