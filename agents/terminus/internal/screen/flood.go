package screen

import (
	"bytes"
	"strings"
)

// flood handles the beginning of plain output of many lines without the
// emulator, which processes only a megabyte per second. Lines that would leave
// the screen before the next look go directly into the history, and the
// emulator gets the others. It returns how many bytes it has handled; 0 means
// that the output is of another kind. The result is the same as if the emulator
// had got all of it.
func (t *TTY) flood(b []byte) int {
	m := t.screen.Modes()
	rows, columns := t.o.Rows, t.o.Columns
	if m.Alternate || m.Margins || m.CursorRow != rows-1 || bytes.Count(b, newline) < 3*rows {
		return 0
	}
	first, end := bytes.IndexByte(b, '\n')+1, bytes.LastIndexByte(b, '\n')+1
	if !plain(b[:end]) {
		return 0
	}
	t.write(b[:first]) // the rest of the current line
	lines := bytes.SplitAfter(b[first:end], newline)
	lines = lines[:len(lines)-1] // the part after the last newline is empty
	old := t.screen.Lines()
	for len(old) < rows-1 { // the cursor is on the last row, which is blank
		old = append(old, "")
	}
	for _, l := range old {
		t.looker.past.add(l)
	}
	passed, kept := lines[:len(lines)-rows], lines[len(lines)-rows:]
	for _, l := range passed {
		for text := bytes.TrimRight(l, "\r\n"); ; text = text[columns:] {
			t.looker.past.add(strings.TrimRight(string(text[:min(columns, len(text))]), " "))
			if len(text) <= columns {
				break
			}
		}
	}
	skip := rows - 1 // lines of the old screen, which are in the history already
	for _, l := range kept {
		_, _ = t.screen.Write(l) // it never fails
		for _, gone := range t.screen.Scrolled() {
			if skip > 0 {
				skip--
				continue
			}
			t.looker.past.add(gone)
		}
	}
	return end
}

var newline = []byte{'\n'}

// plain reports whether b is ASCII text in lines that each end in "\r\n", so
// that each character is one column and each line begins at the first one.
func plain(b []byte) bool {
	for i, c := range b {
		switch {
		case c >= ' ' && c < 0x7f:
		case c == '\r' && i+1 < len(b) && b[i+1] == '\n':
		case c == '\n' && i > 0 && b[i-1] == '\r':
		default:
			return false
		}
	}
	return true
}
