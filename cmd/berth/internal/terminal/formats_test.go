package terminal_test

import (
	"bytes"
	"encoding/csv"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
)

// Names come from tasks and experiments of others: they must not change the form
// of a table, nor be a formula, a command or a control sequence.
func TestForeignTextDoesNotChangeTheFormOfATable(t *testing.T) {
	t.Parallel()
	hostile := "=cmd|'x'!A1 \\input{/etc/passwd} $x$ & a_b %c #d ~ ^ <script> `e` \x1b[2J\n| new | row |"
	written := func(f terminal.Format) string {
		table := terminal.Table{Head: []string{"name", "n"}, Right: []bool{false, true}}
		table.Row(hostile, "-1.5")
		var out bytes.Buffer
		if err := table.WriteAs(&terminal.Printer{Out: &out, Err: &out}, f); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	rows, err := csv.NewReader(strings.NewReader(written(terminal.CSV))).ReadAll()
	if err != nil || len(rows) != 2 || len(rows[1]) != 2 || !strings.HasPrefix(rows[1][0], "'=cmd") || rows[1][1] != "-1.5" || strings.ContainsAny(rows[1][0], "\x1b\n") {
		t.Errorf("csv: %v %q", err, rows)
	}
	markdown := written(terminal.Markdown)
	if strings.Count(markdown, "\n") != 3 || strings.Contains(markdown, "<script>") || strings.Count(strings.ReplaceAll(markdown, `\|`, ""), "|") != 9 {
		t.Errorf("markdown: %q", markdown)
	}
	latex := written(terminal.LaTeX)
	if strings.Contains(latex, `\input`) || strings.Contains(latex, " $x$") || !strings.Contains(latex, `\textbackslash{}input\{/etc/passwd\} \$x\$ \& a\_b \%c \#d`) {
		t.Errorf("latex: %q", latex)
	}
}
