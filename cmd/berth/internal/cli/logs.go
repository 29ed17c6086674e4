package cli

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
)

// traces are the fields of a log line that are the trace of an error in a plugin:
// a stack of Go, a traceback of Python.
var traces = []string{"stack", "traceback"}

// addresses differ in two traces of the same error.
var addresses = regexp.MustCompile(`0x[0-9a-f]+|^goroutine \d+`)

// console writes log lines for people. A trace is printed below its line, and only
// once: the same error in each call of a plugin has the same trace.
func console(to io.Writer, noColor bool) io.Writer {
	seen := map[string]bool{} // the writer is behind a SyncWriter
	return zerolog.ConsoleWriter{
		Out: to, NoColor: noColor, TimeFormat: "15:04:05", FieldsExclude: traces,
		FormatExtra: func(line map[string]any, out *bytes.Buffer) error {
			for _, name := range traces {
				text, _ := line[name].(string)
				same := addresses.ReplaceAllString(text, "")
				if text == "" || seen[same] {
					continue
				}
				if len(seen) < 100 { // a trace has up to 64 KiB
					seen[same] = true
				}
				for row := range strings.Lines(text) {
					indent := len(row) - len(strings.TrimLeft(row, " \t"))
					out.WriteString("\n  " + strings.Repeat(" ", min(indent, 80)) + terminal.Clean(row))
				}
			}
			return nil
		},
	}
}

// logs is the writer of the log. While there is a live block, lines go above
// it.
type logs struct {
	mu sync.Mutex
	to io.Writer
}

// Write implements io.Writer.
func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}

// through redirects the lines to w until undo is called.
func (l *logs) through(w io.Writer) (undo func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.to
	l.to = w
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.to = before
	}
}
