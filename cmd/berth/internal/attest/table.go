package attest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Table writes the attacks and what is expected of them in Markdown.
func (c *Catalogue) Table() string {
	var b strings.Builder
	b.WriteString("| attack | lines | what the agent does | " + strings.Join(Modes, " | ") + " |\n|---|---|---|" + strings.Repeat("---|", len(Modes)) + "\n")
	for i := range c.Attacks {
		a := &c.Attacks[i]
		if a.Control {
			continue
		}
		text := a.Text
		if len(a.Needs) > 0 {
			text += " Needs `" + strings.Join(a.Needs, "`, `") + "`."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |", a.Name, strings.Join(a.IDs, ", "), text)
		for _, mode := range Modes {
			fmt.Fprintf(&b, " %s |", a.cell(mode))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// cell is the expected result in a mode, and where another one is expected.
func (a *Attack) cell(mode string) string {
	texts := []string{string(a.Results[mode])}
	others := map[Result][]string{}
	for _, environment := range slices.Sorted(maps.Keys(a.On)) {
		if r, ok := a.On[environment][mode]; ok && r != a.Results[mode] {
			others[r] = append(others[r], "`"+environment+"`")
		}
	}
	for _, r := range slices.Sorted(maps.Keys(others)) {
		texts = append(texts, fmt.Sprintf("%s on %s", r, strings.Join(others[r], " and ")))
	}
	return strings.Join(texts, "; ")
}

// Tests writes the lines that tests of this tree hold in Markdown.
func (c *Catalogue) Tests() string {
	var b strings.Builder
	b.WriteString("| lines | attack | tests |\n|---|---|---|\n")
	for i := range c.Elsewhere {
		e := &c.Elsewhere[i]
		tests := "–"
		if len(e.Tests) > 0 {
			tests = "`" + strings.Join(e.Tests, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", strings.Join(e.IDs, ", "), e.Text, tests)
	}
	return b.String()
}

// The comments of docs/security.md between which the tables are.
const (
	attacksMark = "<!-- generated: the attacks, from examples/attacks/attacks.yaml by make generate -->\n"
	testsMark   = "<!-- generated: the tests, from the same file -->\n"
	endMark     = "<!-- end -->\n"
)

// Page returns the text of docs/security.md with the tables of the catalogue.
func (c *Catalogue) Page(text string) (string, error) {
	for mark, table := range map[string]string{attacksMark: c.Table(), testsMark: c.Tests()} {
		before, rest, ok := strings.Cut(text, mark)
		_, after, ended := strings.Cut(rest, endMark)
		if !ok || !ended {
			return "", fmt.Errorf("there is no %q with a %q after it", strings.TrimSpace(mark), strings.TrimSpace(endMark))
		}
		text = before + mark + "\n" + table + "\n" + endMark + after
	}
	return text, nil
}
