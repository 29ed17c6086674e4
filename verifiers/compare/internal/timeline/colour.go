package timeline

import (
	"encoding/hex"
	"image/color"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/image/colornames"

	"github.com/berth-eval/berth/verifiers/compare/internal/document"
)

// colour returns the name of the group that a colour belongs to. A text that is no
// colour is a separate group.
func colour(v any) string {
	text, ok := v.(string)
	if !ok {
		return document.Show(v)
	}
	text = strings.ToLower(strings.TrimSpace(text))
	if c, ok := parse(text); ok {
		return group(c)
	}
	return strconv.Quote(text)
}

var function = regexp.MustCompile(`^rgba?\(\s*(\d{1,3})\s*[, ]\s*(\d{1,3})\s*[, ]\s*(\d{1,3})\s*(?:[,/]\s*[\d.]+%?\s*)?\)$`)

// parse reads #rgb, #rrggbb with or without an alpha, rgb(), rgba() and the names
// of SVG. The alpha does not count.
func parse(text string) (color.RGBA, bool) {
	if c, ok := colornames.Map[text]; ok {
		return c, true
	}
	if digits, ok := strings.CutPrefix(text, "#"); ok {
		if len(digits) == 3 || len(digits) == 4 {
			var long strings.Builder
			for _, r := range digits {
				long.WriteRune(r)
				long.WriteRune(r)
			}
			digits = long.String()
		}
		b, err := hex.DecodeString(digits)
		if err != nil || len(b) != 3 && len(b) != 4 {
			return color.RGBA{}, false
		}
		return color.RGBA{R: b[0], G: b[1], B: b[2], A: 255}, true
	}
	m := function.FindStringSubmatch(text)
	if m == nil {
		return color.RGBA{}, false
	}
	var c [3]uint8
	for i := range c {
		n, err := strconv.ParseUint(m[i+1], 10, 8)
		if err != nil {
			return color.RGBA{}, false
		}
		c[i] = uint8(n)
	}
	return color.RGBA{R: c[0], G: c[1], B: c[2], A: 255}, true
}

// group returns the group of a colour by hue, saturation and value.
func group(c color.RGBA) string {
	r, g, b := float64(c.R)/255, float64(c.G)/255, float64(c.B)/255
	v := max(r, g, b)
	spread := v - min(r, g, b)
	switch {
	case v < 0.2:
		return "black"
	case spread/v < 0.2 && v > 0.8:
		return "white"
	case spread/v < 0.2:
		return "grey"
	}
	hue := 0.0
	switch v {
	case r:
		hue = (g - b) / spread
	case g:
		hue = (b-r)/spread + 2
	default:
		hue = (r-g)/spread + 4
	}
	if hue < 0 {
		hue += 6
	}
	for _, s := range []struct {
		below float64 // degrees
		name  string
	}{{15, "red"}, {45, "orange"}, {70, "yellow"}, {170, "green"}, {200, "cyan"}, {260, "blue"}, {345, "purple"}} {
		if hue*60 < s.below {
			return s.name
		}
	}
	return "red"
}
