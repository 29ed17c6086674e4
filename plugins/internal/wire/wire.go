// Package wire contains what every gRPC shim of a contract needs to convert
// values: words and enumerations, times, valid text, and the errors that a shim
// itself can detect.
//
// It must not know any contract, nor build servers or clients.
package wire

import (
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

// Bytes returns texts as a message has those that need not be UTF-8.
func Bytes(texts []string) [][]byte {
	out := make([][]byte, len(texts))
	for i, text := range texts {
		out[i] = []byte(text)
	}
	return out
}

// Strings is the reverse of Bytes.
func Strings(list [][]byte) []string {
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = string(b)
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
