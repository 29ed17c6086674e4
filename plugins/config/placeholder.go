package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/suggest"
)

// Placeholders are the words that a program replaces in a text of the experiment, such
// as a prompt, and how they are written there.
type Placeholders struct {
	form  *regexp.Regexp // its group is the word
	write func(word string) string
}

// The forms of placeholders.
var (
	InBraces   = Placeholders{regexp.MustCompile(`\{\{(\s*[A-Za-z][A-Za-z0-9_-]*\s*)\}\}`), func(word string) string { return "{{" + word + "}}" }} // {{task}}
	InCapitals = Placeholders{regexp.MustCompile(`\{([A-Z][A-Z0-9_]*)\}`), func(word string) string { return "{" + word + "}" }}                    // {TASK}
)

// Problems returns a problem for each word in a text that has the form of a placeholder
// and is not known: it would reach the model as it stands. With open, there are words
// that only a task knows, and those are problems that look like a mistake in a known one.
func (p Placeholders) Problems(at Path, text string, open bool, known ...string) (ps []Problem) {
	var list []string
	for _, k := range known {
		list = append(list, p.write(k))
	}
	seen := map[string]bool{}
	for _, m := range p.form.FindAllStringSubmatchIndex(text, -1) {
		written, word := text[m[0]:m[1]], text[m[2]:m[3]]
		meant := strings.TrimSpace(word)
		spaced := meant != word
		if !slices.Contains(known, meant) {
			meant = suggest.Word(meant, known)
		} else if !spaced {
			continue
		}
		if seen[written] || meant == "" && (open || spaced) {
			continue
		}
		seen[written] = true
		hint := ""
		if meant != "" {
			hint = fmt.Sprintf(" Did you mean %s?", p.write(meant))
		}
		ps = append(ps, Problem{at, "Unknown placeholder", fmt.Sprintf("Line %d of the text has %s, which nothing replaces.%s Known: %s.",
			1+strings.Count(text[:m[0]], "\n"), strings.Join(strings.Fields(written), " "), hint, strings.Join(list, ", "))})
	}
	return ps
}
