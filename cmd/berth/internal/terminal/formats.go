package terminal

import (
	"encoding/csv"
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Format is a form of a table for other programs.
type Format string

// The formats. The zero value is text for a terminal.
const (
	Text     Format = ""
	CSV      Format = "csv"
	Markdown Format = "markdown"
	LaTeX    Format = "latex"
)

// WriteAs writes the table in a format, without colors. Whatever its cells hold,
// it does not change the form of the table.
func (t *Table) WriteAs(p *Printer, f Format) error {
	switch f {
	case CSV:
		return t.csv(p)
	case Markdown:
		t.markdown(p)
	case LaTeX:
		t.latex(p)
	default:
		t.Write(p)
	}
	return nil
}

// plain is a cell without colors, on one line.
func plain(s string) string { return Clean(ansi.Strip(s)) }

// csv writes RFC 4180. A text that a spreadsheet would take for a formula gets a
// ' before it.
func (t *Table) csv(p *Printer) error {
	w := csv.NewWriter(p.Out)
	rows := append([][]string{t.Head}, t.rows...)
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, c := range r {
			if cells[i] = plain(c); !t.right(i) && cells[i] != "" && strings.ContainsRune("=+-@", rune(cells[i][0])) {
				cells[i] = "'" + cells[i]
			}
		}
		if err := w.Write(cells); err != nil {
			return fmt.Errorf("write csv: %w", err)
		}
	}
	w.Flush()
	return w.Error()
}

// inMarkdown are the characters that mean something in a cell of a table.
var inMarkdown = strings.NewReplacer(
	`\`, `\\`, `|`, `\|`, "`", "\\`", `*`, `\*`, `_`, `\_`, `[`, `\[`, `]`, `\]`, `<`, `&lt;`, `>`, `&gt;`, `&`, `&amp;`, `#`, `\#`, `~`, `\~`, `!`, `\!`, `$`, `\$`,
)

func (t *Table) markdown(p *Printer) {
	line := func(cells []string) {
		out := make([]string, len(cells))
		for i, c := range cells {
			out[i] = inMarkdown.Replace(plain(c))
		}
		fmt.Fprintf(p.Out, "| %s |\n", strings.Join(out, " | "))
	}
	line(t.Head)
	rule := make([]string, len(t.Head))
	for i := range rule {
		if rule[i] = "---"; t.right(i) {
			rule[i] = "---:"
		}
	}
	fmt.Fprintf(p.Out, "| %s |\n", strings.Join(rule, " | "))
	for _, r := range t.rows {
		line(r)
	}
}

// inLaTeX are the characters that mean something to TeX, and those of tables that
// not every font has.
var inLaTeX = strings.NewReplacer(
	`\`, `\textbackslash{}`, `{`, `\{`, `}`, `\}`, `$`, `\$`, `&`, `\&`, `#`, `\#`, `_`, `\_`, `%`, `\%`, `~`, `\textasciitilde{}`, `^`, `\textasciicircum{}`,
	`<`, `\textless{}`, `>`, `\textgreater{}`, `"`, `\textquotedbl{}`, "±", `$\pm$`, "×", `$\times$`, "–", `--`, "…", `\ldots{}`,
)

func (t *Table) latex(p *Printer) {
	columns := make([]string, len(t.Head))
	for i := range columns {
		if columns[i] = "l"; t.right(i) {
			columns[i] = "r"
		}
	}
	line := func(cells []string) {
		out := make([]string, len(cells))
		for i, c := range cells {
			out[i] = inLaTeX.Replace(plain(c))
		}
		fmt.Fprintf(p.Out, "  %s \\\\\n", strings.Join(out, " & "))
	}
	fmt.Fprintf(p.Out, "\\begin{tabular}{%s}\n  \\hline\n", strings.Join(columns, ""))
	line(t.Head)
	fmt.Fprintln(p.Out, "  \\hline")
	for _, r := range t.rows {
		line(r)
	}
	fmt.Fprint(p.Out, "  \\hline\n\\end{tabular}\n")
}

// Remarks writes what is to be known about a table in a format: as lines, as
// comments in LaTeX, and to stderr for CSV, which has no place for them.
func (p *Printer) Remarks(f Format, lines []string) {
	for _, l := range lines {
		l = Clean(l)
		switch f {
		case CSV:
			p.Notef("%s\n", l)
		case Markdown:
			fmt.Fprintf(p.Out, "\n%s\n", inMarkdown.Replace(l))
		case LaTeX:
			fmt.Fprintf(p.Out, "%% %s\n", l)
		default:
			p.Printf("%s\n", Wrap(l, p.Width, 0))
		}
	}
}
