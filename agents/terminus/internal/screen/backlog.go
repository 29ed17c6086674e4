package screen

import (
	"bytes"
	"slices"
	"sync"
)

// front is how many bytes of the beginning of a burst are shown. It is more than a
// view has.
const front = 32 << 10

// backlog is output that was read and is not shown yet. Programs print many times
// faster than the emulator reads, so of a long burst it keeps the beginning and the
// end, in whole lines. The zero value is ready.
type backlog struct {
	mu           sync.Mutex
	text         []byte
	gap          int // where lines are missing in text, if bytes is not 0
	lines, bytes int // missing ones
	taken        bool
}

func (l *backlog) add(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	if len(l.text) <= front+2*keep {
		return
	}
	if l.bytes == 0 {
		l.gap = lineEnd(l.text, front)
	}
	end := max(l.gap, lineEnd(l.text, len(l.text)-keep))
	l.lines, l.bytes = l.lines+bytes.Count(l.text[l.gap:end], []byte("\n")), l.bytes+end-l.gap
	l.text = slices.Delete(l.text, l.gap, end)
}

// lineEnd returns where the line at a position ends, or the position if it does not.
func lineEnd(b []byte, at int) int { return at + bytes.IndexByte(b[at:], '\n') + 1 }

// take returns what is to be shown next, nil if there is nothing, and the numbers of
// lines and bytes that are missing before it.
func (l *backlog) take() (part []byte, lines, missing int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(piece, len(l.text))
	switch {
	case l.bytes > 0 && l.gap == 0:
		lines, missing = l.lines, l.bytes
		l.lines, l.bytes = 0, 0
	case l.bytes > 0:
		n = min(n, l.gap)
		l.gap -= n
	}
	if l.taken = n > 0; !l.taken {
		l.text = nil
		return nil, 0, 0
	}
	part, l.text = slices.Clone(l.text[:n]), l.text[n:]
	return part, lines, missing
}

// shown reports whether all that was read is shown: the part that was taken last is
// when the next one is asked for.
func (l *backlog) shown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.text) == 0 && !l.taken
}
