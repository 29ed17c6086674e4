package screen

import (
	"fmt"
	"strings"
)

// keep is how many bytes of the beginning, and of the end, of the scrolled
// lines are kept between two looks. It is more than a screen holds, so that a
// look can recognize the lines that it has seen before.
const keep = 256 << 10

// log holds the first and the last lines, and the number of missing ones
// between them.
type log struct {
	head, tail         []string
	headSize, tailSize int
	lines, bytes       int // missing ones
}

func (l *log) add(line string) {
	size := len(line) + 1
	if len(l.tail) == 0 && l.lines == 0 && l.headSize+size <= keep {
		l.head, l.headSize = append(l.head, line), l.headSize+size
		return
	}
	l.tail, l.tailSize = append(l.tail, line), l.tailSize+size
	for l.tailSize > keep {
		first := len(l.tail[0]) + 1
		l.tail, l.tailSize = l.tail[1:], l.tailSize-first
		l.lines, l.bytes = l.lines+1, l.bytes+first
	}
}

// skip notes lines that are missing after all that was added.
func (l *log) skip(lines, bytes int) {
	if bytes > 0 {
		l.lines, l.bytes = l.lines+len(l.tail)+lines, l.bytes+l.tailSize+bytes
		l.tail, l.tailSize = nil, 0
	}
}

// View is the result of a look at a terminal.
type View struct {
	// Whole says that Text is the whole screen. Otherwise it is the output
	// since the last look.
	Whole bool
	// Unchanged says that there was no output since the last look.
	Unchanged bool
	Text      string
	// Lines and Bytes are the numbers of lines and bytes left out of Text.
	Lines, Bytes int
}

// looker turns a screen and its history into views. Each view continues where
// the last one ended.
type looker struct {
	limit  int // of a view, in bytes
	past   log // lines scrolled off since the last look
	seen   []string
	before string // the last view of an alternate screen
}

// look makes a view of the visible lines.
func (k *looker) look(visible []string, alternate bool) View {
	if alternate {
		whole := strings.Join(visible, "\n")
		same := whole == k.before
		k.before = whole
		v := limited(visible, nil, 0, 0, k.limit)
		v.Whole, v.Unchanged = true, same
		return v
	}
	past := k.past
	k.past, k.before = log{}, ""
	known := prefix(k.seen, past.head, visible)
	changed := known < len(k.seen)
	switch {
	case changed && known >= len(k.seen)-1:
		// The last line has become longer: show it again in its current form.
	case changed && len(past.head) == 0:
		k.seen = visible
		v := limited(visible, nil, 0, 0, k.limit)
		v.Whole = true
		return v
	case changed:
		// The screen was redrawn and then more output came: show everything
		// that differs.
	}
	fresh := append(append([]string(nil), past.head...), past.tail...)
	cut := len(past.head)
	fresh = append(fresh, visible...)
	fresh = fresh[min(known, len(fresh)):]
	cut = max(cut-known, 0)
	k.seen = visible
	if len(fresh) == 0 {
		v := limited(visible, nil, 0, 0, k.limit)
		v.Whole, v.Unchanged = true, true
		return v
	}
	if past.lines == 0 {
		cut = len(fresh)
	}
	return limited(fresh[:cut], fresh[cut:], past.lines, past.bytes, k.limit)
}

// prefix returns how many of the lines in seen are unchanged at the beginning
// of past and visible.
func prefix(seen, past, visible []string) int {
	n := 0
	for n < len(seen) {
		var now string
		switch {
		case n < len(past):
			now = past[n]
		case n-len(past) < len(visible):
			now = visible[n-len(past)]
		default:
			return n
		}
		if now != seen[n] {
			return n
		}
		n++
	}
	return n
}

// limited joins lines to a view of at most limit bytes. lines and bytes are the
// numbers that are already missing between head and tail.
func limited(head, tail []string, lines, bytes, limit int) View {
	v := View{Lines: lines, Bytes: bytes}
	size := 0
	for _, part := range [][]string{head, tail} {
		for _, l := range part {
			size += len(l) + 1
		}
	}
	if size <= limit && lines == 0 {
		v.Text = strings.Join(append(append([]string(nil), head...), tail...), "\n")
		return v
	}
	if lines == 0 {
		head = append(append([]string(nil), head...), tail...)
		tail = head
	}
	first, n, rest := takeFirst(head, limit/2)
	last, m, left := takeLast(tail, limit/2)
	if lines == 0 { // head and tail are the same lines
		v.Lines, v.Bytes = len(head)-n-m, size-len(first)-len(last)
	} else {
		v.Lines += len(head) - n + len(tail) - m
		v.Bytes += rest + left
	}
	v.Lines, v.Bytes = max(v.Lines, 0), max(v.Bytes, 0)
	v.Text = fmt.Sprintf("%s\n[… %d lines (%d bytes) in the middle are left out …]\n%s", first, v.Lines, v.Bytes, last)
	return v
}

// takeFirst returns as many lines as fit, how many they are, and the number of
// bytes of the others. It cuts a first line that is too long.
func takeFirst(lines []string, limit int) (text string, n, rest int) {
	size := 0
	for n < len(lines) && size+len(lines[n])+1 <= limit {
		size += len(lines[n]) + 1
		n++
	}
	text = strings.Join(lines[:n], "\n")
	if n == 0 && len(lines) > 0 {
		text = strings.ToValidUTF8(lines[0][:min(limit, len(lines[0]))], "")
	}
	for _, l := range lines[n:] {
		rest += len(l) + 1
	}
	return text, n, rest
}

// takeLast is takeFirst from the end.
func takeLast(lines []string, limit int) (text string, n, rest int) {
	size, at := 0, len(lines)
	for at > 0 && size+len(lines[at-1])+1 <= limit {
		at--
		size += len(lines[at]) + 1
	}
	text = strings.Join(lines[at:], "\n")
	if at == len(lines) && at > 0 {
		l := lines[at-1]
		text = strings.ToValidUTF8(l[max(0, len(l)-limit):], "")
	}
	for _, l := range lines[:at] {
		rest += len(l) + 1
	}
	return text, len(lines) - at, rest
}
