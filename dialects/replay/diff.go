package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Difference is the first place where two requests differ.
type Difference struct {
	Path     string // in JSON: messages[3].content[0].text
	Message  int    // index of the message that contains it; -1: none
	Recorded string // recorded value, shortened
	Now      string // current value, shortened
}

// String returns the difference on one line.
func (d Difference) String() string {
	where := d.Path
	if d.Message >= 0 {
		where = fmt.Sprintf("message %d, at %s", d.Message, d.Path)
	}
	return fmt.Sprintf("%s: recorded %s, now %s", where, d.Recorded, d.Now)
}

// Diff finds the first difference between two JSON texts, in the order of the
// first one; false if there is none.
func Diff(recorded, now []byte) (Difference, bool) {
	var a, b any
	if decode(recorded, &a) != nil || decode(now, &b) != nil {
		return Difference{Path: "$", Message: -1, Recorded: clip(string(recorded), 0), Now: clip(string(now), 0)}, !bytes.Equal(recorded, now)
	}
	d := walk("", a, b)
	if d == nil {
		return Difference{}, false
	}
	d.Message = message(d.Path)
	return *d, true
}

func decode(b []byte, v *any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode(v)
}

// lists are the members that contain the messages of a conversation.
var lists = []string{"messages[", "input[", "contents["}

func message(path string) int {
	for _, l := range lists {
		if rest, ok := strings.CutPrefix(path, l); ok {
			number, _, _ := strings.Cut(rest, "]")
			if n, err := strconv.Atoi(number); err == nil {
				return n
			}
		}
	}
	return -1
}

func walk(path string, a, b any) *Difference {
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			return walkObject(path, x, y)
		}
	case []any:
		if y, ok := b.([]any); ok {
			return walkArray(path, x, y)
		}
	case string:
		if y, ok := b.(string); ok {
			if x == y {
				return nil
			}
			if picture(x) && picture(y) {
				return &Difference{Path: path, Recorded: fmt.Sprintf("a picture of %d characters", len(x)), Now: fmt.Sprintf("another picture, of %d", len(y))}
			}
			at := common(x, y)
			return &Difference{Path: path, Recorded: clip(x, at), Now: clip(y, at)}
		}
	default:
		if a == b {
			return nil
		}
	}
	return &Difference{Path: path, Recorded: text(a), Now: text(b)}
}

// picture reports whether a text is a PNG, a JPEG or another picture, in base64. Its
// characters say nothing to a reader.
func picture(s string) bool {
	return strings.HasPrefix(s, "data:image/") || strings.HasPrefix(s, "iVBORw0KGgo") || strings.HasPrefix(s, "/9j/")
}

func walkObject(path string, x, y map[string]any) *Difference {
	names := slices.Collect(maps.Keys(x))
	for n := range y {
		if _, ok := x[n]; !ok {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	for _, n := range names {
		below := strings.TrimPrefix(path+"."+n, ".")
		v, inX := x[n]
		w, inY := y[n]
		switch {
		case !inX:
			return &Difference{Path: below, Recorded: "nothing", Now: text(w)}
		case !inY:
			return &Difference{Path: below, Recorded: text(v), Now: "nothing"}
		}
		if d := walk(below, v, w); d != nil {
			return d
		}
	}
	return nil
}

func walkArray(path string, x, y []any) *Difference {
	for i := range max(len(x), len(y)) {
		below := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case i >= len(x):
			return &Difference{Path: below, Recorded: "nothing", Now: text(y[i])}
		case i >= len(y):
			return &Difference{Path: below, Recorded: text(x[i]), Now: "nothing"}
		}
		if d := walk(below, x[i], y[i]); d != nil {
			return d
		}
	}
	return nil
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return short(string(b))
}

// common returns the length in bytes of the common beginning of two strings, up
// to a whole character.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(a) && !utf8.RuneStart(a[n]) {
		n--
	}
	return n
}

// How many bytes of a text are shown before and after a position.
const (
	before = 20
	after  = 80
)

// clip returns the part of s around a position, quoted.
func clip(s string, at int) string {
	from := max(0, at-before)
	for from > 0 && !utf8.RuneStart(s[from]) {
		from--
	}
	lead := ""
	if from > 0 {
		lead = "…"
	}
	return short(strconv.Quote(lead + s[from:]))
}

func short(s string) string {
	if len(s) <= before+after {
		return s
	}
	return strings.ToValidUTF8(s[:before+after], "") + "…"
}
