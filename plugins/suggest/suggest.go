// Package suggest finds, for a word that is not on a list, the one that was
// probably meant. Every message about an unknown name ends with what it says.
//
// It must not decide whether a name is known.
package suggest

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/agext/levenshtein"
)

// longest is the longest word that is compared, in bytes: the time grows with
// the square of it.
const longest = 100

// few is how many words a message lists.
const few = 12

// Word is the word of known that is nearest to name, without regard to case;
// empty when none is near. Of several the first wins.
func Word(name string, known []string) string {
	best, least := "", 1+min(3, (len(name)+1)/3) // one slip in two letters is another word
	for _, k := range known {
		if len(name) > longest || len(k) > longest {
			continue
		}
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < least && printable(k) {
			best, least = k, d
		}
	}
	return best
}

// Hint completes a message about a name that is unknown, as a sentence with a
// space before it: " Did you mean …?", or all known words if they are few, or
// nothing.
func Hint(name string, known []string) string {
	if best := Word(name, known); best != "" {
		return fmt.Sprintf(" Did you mean %q?", best)
	}
	if len(known) == 0 || len(known) > few {
		return ""
	}
	return " Known: " + strings.Join(known, ", ") + "."
}

// After is Hint for the end of an error: ": did you mean …?", or "; known: …",
// or nothing.
func After(name string, known []string) string {
	if best := Word(name, known); best != "" {
		return fmt.Sprintf(": did you mean %q?", best)
	}
	if len(known) == 0 || len(known) > few {
		return ""
	}
	return "; known: " + strings.Join(known, ", ")
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// distance counts slips of the fingers: letters that are wrong, missing, too
// many, or, once, swapped with their neighbor.
func distance(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			continue
		}
		if len(a) == len(b) && i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] {
			return 1 + levenshtein.Distance(a[i+2:], b[i+2:], nil)
		}
		break
	}
	return levenshtein.Distance(a, b, nil)
}
