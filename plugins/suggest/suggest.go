// Package suggest finds, for an unknown word, the known word that was probably
// meant. Every message about an unknown name ends with its suggestion.
//
// It must not decide whether a name is known.
package suggest

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/agext/levenshtein"
)

// longest is the longest word that is compared, in bytes. The time grows with
// the square of the length.
const longest = 100

// few is the largest number of words that a message lists.
const few = 12

// Word returns the word of known that is nearest to name, ignoring case, or an
// empty string if none is near. If several are equally near, the first wins.
func Word(name string, known []string) string {
	best, least := "", 1+min(3, (len(name)+1)/3) // with more than one mistake in two letters it is another word
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

// Hint returns a sentence, with a space before it, for the end of a message
// about an unknown name: " Did you mean …?", or all known words if they are
// few, or nothing.
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

// distance counts typing mistakes: letters that are wrong, missing or extra, or
// swapped with their neighbor.
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
