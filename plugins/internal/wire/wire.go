// Package wire contains what every gRPC shim of a contract needs to convert
// values: words and enumerations, times, valid text, and the errors that a shim
// itself can detect.
//
// It must not know any contract, nor build servers or clients.
package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-eval/berth/plugins/fault"
)

// MaxLine is the size of the longest log line in one message, in bytes.
const MaxLine = 64 << 10

// Invalid returns an ErrInvalid that says what is wrong.
func Invalid(format string, a ...any) error {
	return fmt.Errorf("%w: %s", fault.ErrInvalid, fmt.Sprintf(format, a...))
}

// Pair is one word in Go and its number in messages.
type Pair[G ~string, P ~int32] struct {
	Word   G
	Number P
}

// Enum maps words to numbers. A zero in a message, and a number that is not in
// the list, are errors, never defaults.
type Enum[G ~string, P ~int32] struct {
	Name  string // for messages: "role"
	Pairs []Pair[G, P]
}

// To returns the number of word. It returns 0 for a word that is not in the
// list, and the other side refuses that.
func (e Enum[G, P]) To(word G) P {
	for _, p := range e.Pairs {
		if p.Word == word {
			return p.Number
		}
	}
	return 0
}

// From returns the word of number, or an ErrInvalid.
func (e Enum[G, P]) From(number P) (G, error) {
	for _, p := range e.Pairs {
		if p.Number == number {
			return p.Word, nil
		}
	}
	if number == 0 {
		return "", Invalid("%s is not given", e.Name)
	}
	return "", Invalid("%s %d is not known", e.Name, number)
}

// Millis returns d in milliseconds, rounded away from zero: a limit must not
// become 0, which means no limit.
func Millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	switch rest := d - time.Duration(ms)*time.Millisecond; {
	case rest > 0:
		ms++
	case rest < 0:
		ms--
	}
	return ms
}

// Duration returns ms milliseconds as a duration. A value that does not fit
// becomes the longest duration.
func Duration(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(max(-most, min(most, ms))) * time.Millisecond
}

// Text replaces every byte of s that is not UTF-8, because gRPC refuses to send
// it.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Texts applies Text to each element of list.
func Texts(list []string) []string { return Each(list, Text) }

// TextMap applies Text to each key and value of m.
func TextMap(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[Text(k)] = Text(v)
	}
	return out
}

// Lines cuts a line into pieces of at most MaxLine bytes. It does not split
// characters and removes the line end. An empty line is one piece.
func Lines(line string) []string {
	line = Text(strings.TrimRight(line, "\r\n"))
	var pieces []string
	for len(line) > MaxLine {
		cut := MaxLine
		for !utf8.RuneStart(line[cut]) {
			cut--
		}
		pieces, line = append(pieces, line[:cut]), line[cut:]
	}
	return append(pieces, line)
}

// JSON checks that raw is empty or one JSON value. name is used in the error.
func JSON(name string, raw []byte) (json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if !json.Valid(raw) {
		return nil, Invalid("%s is not JSON", name)
	}
	return raw, nil
}

// Each converts a list; nil stays nil.
func Each[A, B any](list []A, f func(A) B) []B {
	if list == nil {
		return nil
	}
	out := make([]B, len(list))
	for i, a := range list {
		out[i] = f(a)
	}
	return out
}

// EachErr converts a list and stops at the first error; nil stays nil.
func EachErr[A, B any](list []A, f func(A) (B, error)) ([]B, error) {
	if list == nil {
		return nil, nil
	}
	out := make([]B, len(list))
	for i, a := range list {
		b, err := f(a)
		if err != nil {
			return nil, err
		}
		out[i] = b
	}
	return out, nil
}

// Values converts the values of a map; nil stays nil.
func Values[A, B any](m map[string]A, f func(A) B) map[string]B {
	if m == nil {
		return nil
	}
	out := make(map[string]B, len(m))
	for k, v := range m {
		out[Text(k)] = f(v)
	}
	return out
}

// ValuesErr converts the values of a map and stops at the first error, which it
// prefixes with the key; nil stays nil.
func ValuesErr[A, B any](m map[string]A, f func(A) (B, error)) (map[string]B, error) {
	if m == nil {
		return nil, nil
	}
	out := make(map[string]B, len(m))
	for k, v := range m {
		b, err := f(v)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", k, err)
		}
		out[k] = b
	}
	return out, nil
}
