// Package number reads numbers that people, models and programs wrote as text: with
// a point or a comma before the fraction, and with marks between groups of digits.
// It must not know units or scales.
package number

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

// decimal is the form that programs write: no infinity, no hexadecimal digits and no
// underscores, all of which strconv reads.
var decimal = regexp.MustCompile(`^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$`)

// Decimal returns the finite value of a text in the form that programs write, such
// as -1.5e3.
func Decimal(text string) (float64, bool) {
	if !decimal.MatchString(text) {
		return 0, false
	}
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil && !math.IsInf(v, 0)
}

// Groups of three digits, the first with one to three digits and no leading 0, and
// the fraction after them. A single point before three digits is before a fraction,
// as programs write it; a single comma there is between groups.
var grouped = []*regexp.Regexp{
	regexp.MustCompile(`^[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.([0-9]*))?$`),
	regexp.MustCompile(`^[1-9][0-9]{0,2}(?:(?:\.[0-9]{3}){2,}|(?:\.[0-9]{3})+,([0-9]+))$`),
	regexp.MustCompile(`^[1-9][0-9]{0,2}(?:'[0-9]{3})+(?:[.,]([0-9]+))?$`),
	regexp.MustCompile(`^[1-9][0-9]{0,2}(?: [0-9]{3})+(?:[.,]([0-9]+))?$`),
}

// alike writes signs, apostrophes and spaces of typography as ASCII has them.
var alike = strings.NewReplacer("\u2212", "-", "\u2019", "'", "\u00a0", " ", "\u2009", " ", "\u202f", " ")

// marks are all that can be between groups.
var marks = strings.NewReplacer(",", "", ".", "", "'", "", " ", "")

// Read returns the finite value of a text that is one number in the form of a
// program or of any country: 2602.5, 2,602.5, 2.602,5, 2 602,5 or 2'602.5. A comma
// stands between groups only if exactly three digits follow and at most three are
// before it: 1,234 is 1234, and 4,2 is 4.2. Anything else, such as 1,23,456, is no
// number.
func Read(text string) (float64, bool) {
	text = strings.TrimSpace(alike.Replace(text))
	if v, ok := Decimal(text); ok {
		return v, ok
	}
	sign := ""
	if strings.HasPrefix(text, "-") || strings.HasPrefix(text, "+") {
		sign, text = text[:1], text[1:]
	}
	for _, form := range grouped {
		if m := form.FindStringSubmatch(text); m != nil {
			return Decimal(sign + marks.Replace(strings.TrimSuffix(text, m[1])) + "." + m[1])
		}
	}
	if before, after, found := strings.Cut(text, ","); found && after != "" && !strings.Contains(before, ".") {
		return Decimal(sign + before + "." + after)
	}
	return 0, false
}
