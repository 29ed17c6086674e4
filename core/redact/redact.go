// Package redact replaces secret values in texts, JSON and copied files before a
// run keeps them. It does not know which values are secret: callers say so. What
// the gateway keeps of model traffic has its own filter, which works on streams.
package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// Mark stands where a secret stood in a text.
const Mark = "[secret]"

// Least is the shortest value that is looked for, in bytes. Shorter ones occur
// by chance: replacing "1" or "true" would spoil the record and hide nothing.
const Least = 8

// Redactor replaces a fixed set of values. The zero value and nil replace
// nothing. It is safe for concurrent use.
type Redactor struct {
	values  []string // longest first, so that no part of one is left
	encoded [][]byte // as they may stand in JSON
}

// New makes a Redactor for values; those shorter than Least are left out.
func New(values ...string) *Redactor {
	r := &Redactor{}
	for _, v := range values {
		if len(v) >= Least && !slices.Contains(r.values, v) {
			r.values = append(r.values, v)
		}
	}
	slices.SortFunc(r.values, func(a, b string) int { return len(b) - len(a) })
	for _, v := range r.values {
		r.encoded = append(r.encoded, []byte(v))
		for _, html := range []bool{true, false} {
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(html)
			if e.Encode(v) == nil {
				encoded := bytes.Trim(bytes.TrimSpace(b.Bytes()), `"`)
				r.encoded = append(r.encoded, encoded, asciiOnly(encoded))
			}
		}
	}
	r.encoded = slices.CompactFunc(r.encoded, bytes.Equal) // most values are the same in all forms
	return r
}

// asciiOnly returns JSON as Python writes it, which escapes all but ASCII.
func asciiOnly(encoded []byte) []byte {
	var out []byte
	for _, c := range string(encoded) {
		switch high, low := utf16.EncodeRune(c); {
		case c < utf8.RuneSelf:
			out = append(out, byte(c))
		case low == utf8.RuneError: // it needs no pair
			out = fmt.Appendf(out, "\\u%04x", c)
		default:
			out = fmt.Appendf(out, "\\u%04x\\u%04x", high, low)
		}
	}
	return out
}

// Text returns s without secrets.
func (r *Redactor) Text(s string) string {
	if r == nil {
		return s
	}
	for _, v := range r.values {
		s = strings.ReplaceAll(s, v, Mark)
	}
	return s
}

// Bytes returns b without secrets, neither as they are nor as they stand in JSON.
func (r *Redactor) Bytes(b []byte) []byte {
	if !r.in(b) {
		return b
	}
	for _, v := range r.encoded {
		b = bytes.ReplaceAll(b, v, []byte(Mark))
	}
	return b
}

// JSON encodes v as one line without secrets in any of its strings and keys.
func (r *Redactor) JSON(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil || !r.in(b) {
		return b, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var plain any
	if err := d.Decode(&plain); err != nil {
		return nil, fmt.Errorf("redact: %w", err)
	}
	return json.Marshal(r.walk(plain))
}

func (r *Redactor) in(b []byte) bool {
	return r != nil && slices.ContainsFunc(r.encoded, func(v []byte) bool { return bytes.Contains(b, v) })
}

func (r *Redactor) walk(v any) any {
	switch x := v.(type) {
	case string:
		if _, err := time.Parse(time.RFC3339, x); err == nil {
			return x // readers need a time there, and it tells no secret
		}
		return r.Text(x)
	case json.Number:
		if r.Text(x.String()) != x.String() { // a secret of digits; readers need a number there
			return 0
		}
		return x
	case []any:
		for i := range x {
			x[i] = r.walk(x[i])
		}
		return x
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, e := range x {
			out[r.Text(k)] = r.walk(e)
		}
		return out
	default:
		return v
	}
}

// Masked returns b with each byte of a secret replaced by "*".
func (r *Redactor) Masked(b []byte) []byte {
	var out bytes.Buffer
	w := r.Writer(&out)
	_, _ = w.Write(b) // a buffer takes everything
	_ = w.Close()
	return out.Bytes()
}

// Writer returns a writer that passes on what it is given with each byte of a
// secret replaced by "*", so that sizes and offsets stay; hits says how often.
// Close writes what is still held back; it does not close w.
func (r *Redactor) Writer(w io.Writer) *Writer { return &Writer{r: r, w: w} }

// Writer is made by Redactor.Writer. It is not safe for concurrent use.
type Writer struct {
	r    *Redactor
	w    io.Writer
	held []byte
	at   int64 // of the first held byte
	hits int

	// Found, if it is set, is told of each secret, and where it begins.
	Found func(at int64, secret string)
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	if w.r == nil || len(w.r.values) == 0 {
		return w.w.Write(p)
	}
	w.held = append(w.held, p...)
	w.mask()
	ready := len(w.held)
	for _, v := range w.r.values {
		ready = min(ready, len(w.held)-begun(w.held, v))
	}
	if ready > 0 {
		if _, err := w.w.Write(w.held[:ready]); err != nil {
			return 0, err
		}
		w.at += int64(ready)
		w.held = append(w.held[:0], w.held[ready:]...)
	}
	return len(p), nil
}

// begun returns how many bytes at the end of p are the beginning of v, but not all of it.
func begun(p []byte, v string) int {
	for n := min(len(p), len(v)-1); n > 0; n-- {
		if string(p[len(p)-n:]) == v[:n] {
			return n
		}
	}
	return 0
}

func (w *Writer) mask() {
	for _, v := range w.r.values {
		for at := 0; ; {
			i := bytes.Index(w.held[at:], []byte(v))
			if i < 0 {
				break
			}
			at += i
			if w.Found != nil {
				w.Found(w.at+int64(at), v)
			}
			copy(w.held[at:], strings.Repeat("*", len(v)))
			w.hits++
		}
	}
}

// Close writes the rest.
func (w *Writer) Close() error {
	if len(w.held) == 0 {
		return nil
	}
	_, err := w.w.Write(w.held)
	w.held = nil
	return err
}

// Hits is how many secrets were replaced so far.
func (w *Writer) Hits() int { return w.hits }

// Value is v without secrets: it goes through JSON only if one is in it.
func Value[T any](r *Redactor, v T) (T, error) {
	if r == nil || len(r.encoded) == 0 {
		return v, nil
	}
	b, err := json.Marshal(v)
	if err != nil || !r.in(b) {
		return v, err
	}
	if b, err = r.JSON(v); err != nil {
		return v, err
	}
	var out T
	if err = json.Unmarshal(b, &out); err != nil {
		return v, fmt.Errorf("redact: %w", err)
	}
	return out, nil
}
