// Package asciicast records a terminal, for agents that work at one.
//
// It must not read recordings.
package asciicast

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
	"unicode/utf8"
)

// maxCast is the largest size of a recording, in bytes.
const maxCast = 64 << 20

// Cast records a terminal as asciicast v2
// (https://docs.asciinema.org/manual/asciicast/v2/). Safe for concurrent use.
// A nil Cast records nothing.
type Cast struct {
	mu    sync.Mutex
	file  *os.File
	out   *bufio.Writer
	begun time.Time
	// before is how much of its second had passed then: the header has whole
	// seconds, and times of events count from there, so that they are exact.
	before time.Duration
	size   int64
	rest   []byte // an incomplete character at the end of the output
	full   bool
	err    error
}

// New begins a recording in a new file. title says whose terminal it is, so that
// a viewer finds it while it is recorded.
func New(path, title string, rows, columns int, now time.Time) (*Cast, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("record the terminal: %w", err)
	}
	c := &Cast{file: f, out: bufio.NewWriterSize(f, 64<<10), begun: now, before: time.Duration(now.Nanosecond())}
	c.write(struct {
		Version   int               `json:"version"`
		Width     int               `json:"width"`
		Height    int               `json:"height"`
		Timestamp int64             `json:"timestamp"`
		Title     string            `json:"title,omitempty"`
		Env       map[string]string `json:"env"`
	}{2, columns, rows, now.Unix(), title, map[string]string{"TERM": "xterm-256color"}})
	return c, c.Flush()
}

// Output records output of a program.
func (c *Cast) Output(b []byte) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b = append(c.rest, b...)
	n := whole(b)
	c.rest = append([]byte(nil), b[n:]...)
	if n > 0 {
		c.event("o", string(b[:n]))
	}
	// Output comes in few large pieces: a viewer sees each at once.
	if err := c.out.Flush(); c.err == nil {
		c.err = err
	}
}

// Input records keystrokes.
func (c *Cast) Input(b []byte) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.event("i", string(b))
}

// Mark records a mark with a label, at which players can stop.
func (c *Cast) Mark(label string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.event("m", label)
}

// Flush writes everything recorded so far to the file.
func (c *Cast) Flush() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.out.Flush(); c.err == nil {
		c.err = err
	}
	return c.err
}

// Close ends the recording.
func (c *Cast) Close() error {
	if c == nil {
		return nil
	}
	err := c.Flush()
	if bad := c.file.Close(); err == nil {
		err = bad
	}
	return err
}

// event writes one event. The caller holds the lock.
func (c *Cast) event(kind, data string) {
	if c.full {
		return
	}
	if c.size > maxCast {
		c.full = true
		kind, data = "m", fmt.Sprintf("the recording ends here: it is larger than %d MiB", maxCast>>20)
	}
	c.write([]any{json.RawMessage(fmt.Sprintf("%.6f", (c.before + time.Since(c.begun)).Seconds())), kind, data})
}

func (c *Cast) write(v any) {
	b, err := json.Marshal(v) // it replaces invalid UTF-8
	if err == nil {
		var n int
		n, err = c.out.Write(append(b, '\n'))
		c.size += int64(n)
	}
	if c.err == nil {
		c.err = err
	}
}

// whole returns the length of b without an incomplete character at its end.
func whole(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return len(b) - i
			}
			break
		}
	}
	return len(b)
}
