package cli

import (
	"io"
	"sync"
)

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
