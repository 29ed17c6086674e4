package similarity

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// length reads a length in pixels. A value in another unit, such as a percentage,
// and a word such as auto have none.
func length(s string) (float64, bool) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(s), "px"), 64)
	return v, err == nil && !math.IsInf(v, 0) && !math.IsNaN(v)
}

// likeLength compares lengths: 1 − |y − x| ÷ |x|, at least 0. Next to 0 only 0 is
// similar.
func likeLength(x, y string) (float64, bool) {
	a, ok := length(x)
	b, ok2 := length(y)
	switch {
	case !ok || !ok2:
		return 0, false
	case a == 0 && b == 0:
		return 1, true
	case a == 0:
		return 0, true
	}
	return max(0, 1-math.Abs(b-a)/math.Abs(a)), true
}

// colour reads rgb(…) and rgba(…), without the opacity.
func colour(s string) (c [3]float64, ok bool) {
	_, list, found := strings.Cut(s, "(")
	parts := strings.Split(strings.TrimRight(list, ")"), ", ")
	if !found || !strings.Contains(s, "rgb") || len(parts) < 3 {
		return c, false
	}
	for i, p := range parts {
		v, ok := length(p)
		if !ok {
			return c, false
		}
		if i < 3 {
			c[i] = v
		}
	}
	return c, true
}

// shades is how many values a part of a colour has.
const shades = 256

// likeColour compares colours: the mean of 1 − |Δ| ÷ 256 over red, green and blue.
func likeColour(x, y string) (float64, bool) {
	a, ok := colour(x)
	b, ok2 := colour(y)
	if !ok || !ok2 {
		return 0, false
	}
	sum := 0.0
	for i := range a {
		sum += max(0, 1-math.Abs(a[i]-b[i])/shades)
	}
	return sum / 3, true
}

// words is a text that is compared with many.
type words struct {
	plain string   // without space around it, in lower case
	count int      // of words
	set   []string // different words, sorted
}

// fewWords is how many words a text has at least so that they are compared one by
// one.
const fewWords = 10

func split(text string) *words {
	text = strings.TrimSpace(text)
	w := &words{plain: strings.ToLower(text), set: strings.Split(text, " ")}
	w.count = len(w.set)
	slices.Sort(w.set)
	w.set = slices.Compact(w.set)
	return w
}

// likeText compares texts: those of fewer than ten words are equal or not, of others
// the share of words that they have in common counts.
func likeText(x, y *words) float64 {
	if x.count < fewWords {
		if x.plain == y.plain {
			return 1
		}
		return 0
	}
	common := 0
	for i, j := 0, 0; i < len(x.set) && j < len(y.set); {
		switch {
		case x.set[i] == y.set[j]:
			common, i, j = common+1, i+1, j+1
		case x.set[i] < y.set[j]:
			i++
		default:
			j++
		}
	}
	return float64(common) / float64(len(x.set)+len(y.set)-common)
}

func likeChoice(x, y string) (float64, bool) {
	if x == y {
		return 1, true
	}
	return 0, true
}

// shadow reads a box-shadow: a colour and four lengths. The published program cannot
// read one with an alpha value: it takes the colour apart in the wrong place.
func shadow(s string) (hue string, lengths []string, ok bool) {
	if parts := strings.Split(s, " "); len(parts) > 4 && !strings.Contains(s, "rgba(") {
		return strings.Join(parts[:len(parts)-4], " "), parts[len(parts)-4:], true
	}
	return "", nil, false
}

func likeShadow(x, y string) (float64, bool) {
	hueX, x4, ok := shadow(x)
	hueY, y4, ok2 := shadow(y)
	if !ok || !ok2 {
		return 0, false
	}
	sum, ok := likeColour(hueX, hueY)
	sum *= 2
	for i := range x4 {
		v, is := likeLength(x4[i], y4[i])
		sum, ok = sum+v, ok && is
	}
	return sum / 6, ok
}

var (
	wholeWithAlpha = regexp.MustCompile(`rgba\(\d+, \d+, \d+, \d+\)`)
	wholeNoAlpha   = regexp.MustCompile(`rgb\(\d+, \d+, \d+\)`)
)

// coloursOf returns the colours of a text-shadow that the published program finds.
func coloursOf(s string) []string {
	return append(wholeWithAlpha.FindAllString(s, -1), wholeNoAlpha.FindAllString(s, -1)...)
}

func lengthsOfShadow(s string) []string {
	return slices.DeleteFunc(strings.Split(s, " "), func(p string) bool { return !strings.HasSuffix(p, "px") })
}

// likeTextShadow compares text-shadows: the first colour counts twice, and each
// length that both have once.
func likeTextShadow(x, y string) (float64, bool) {
	sum, weight := 0.0, 0.0
	if strings.Contains(x, "rgb") {
		weight = 2
		if a, b := coloursOf(x), coloursOf(y); len(a) == len(b) {
			if len(a) == 0 {
				return 0, false
			}
			v, ok := likeColour(a[0], b[0])
			if !ok {
				return 0, false
			}
			sum = 2 * v
		}
	}
	a, b := lengthsOfShadow(x), lengthsOfShadow(y)
	for i := range min(len(a), len(b)) {
		v, ok := likeLength(a[i], b[i])
		if !ok {
			return 0, false
		}
		sum, weight = sum+v, weight+1
	}
	if weight == 0 {
		return 0, false
	}
	return sum / weight, true
}

// likeSize compares two lengths, as background-size has them.
func likeSize(x, y string) (float64, bool) {
	a, b := strings.Split(x, " "), strings.Split(y, " ")
	if len(a) != 2 || len(b) != 2 {
		return 0, false
	}
	w, ok := likeLength(a[0], b[0])
	h, ok2 := likeLength(a[1], b[1])
	return (w + h) / 2, ok && ok2
}

// likeGradient compares the opaque colours of two backgrounds, one by one.
func likeGradient(x, y string) (float64, bool) {
	a, b := wholeNoAlpha.FindAllString(x, -1), wholeNoAlpha.FindAllString(y, -1)
	n := min(len(a), len(b))
	if n == 0 {
		return 0, false
	}
	sum := 0.0
	for i := range n {
		v, _ := likeColour(a[i], b[i]) // it fits the form
		sum += v
	}
	return sum / float64(n), true
}
