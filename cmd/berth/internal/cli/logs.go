package cli

import (
	"io"
	"sync"
)

// logs is where the lines of the log go: above the live block while there is
// one.
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

// through sends them elsewhere, until undo.
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
