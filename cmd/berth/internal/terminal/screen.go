package terminal

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
)

// Screen replaces a text on a terminal by the next one, in place. What was above
// it stays.
type Screen struct {
	p     *Printer
	lines int // of the text that is shown
}

// Screen returns a Screen on Out; nil if Out is not a terminal on which lines can be
// written again.
func (p *Printer) Screen() *Screen {
	if !p.Again || p.Width == 0 {
		return nil
	}
	return &Screen{p: p}
}

// Show replaces the text by the one that write prints.
func (s *Screen) Show(write func(p *Printer)) {
	s.Lines(func(width, _ int) (_, lines []string) {
		var text strings.Builder
		p := *s.p
		p.Out, p.Width = &text, width
		write(&p)
		return nil, strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	})
}

// Lines replaces the text by the lines that of returns for the size of the terminal,
// and prints others above it, where they stay. Lines that are wider than the terminal
// are cut, and so is what is below its last line.
func (s *Screen) Lines(of func(width, height int) (above, lines []string)) {
	width, height := s.size()
	above, lines := of(width, height)
	if most := max(height-1, 2); len(lines) > most { // the cursor is below the text
		lines = append(lines[:most-1], fmt.Sprintf("… and %d more lines", len(lines)-most+1))
	}
	for i, l := range lines {
		lines[i] = ansi.Truncate(l, width, "…")
	}
	fmt.Fprint(s.p.Out, s.erase()+strings.Join(append(above, lines...), "\n")+"\n")
	s.lines = len(lines)
}

// Clear removes the text.
func (s *Screen) Clear() {
	fmt.Fprint(s.p.Out, s.erase())
	s.lines = 0
}

// erase moves the cursor to the beginning of the text and removes the text.
func (s *Screen) erase() string {
	if s.lines == 0 {
		return ""
	}
	return ansi.CursorUp(s.lines) + "\r" + ansi.EraseScreenBelow
}

// size is the size of the terminal now, since a window may be resized.
func (s *Screen) size() (width, height int) {
	const usual = 24 // lines, of a terminal that does not tell
	width, height = s.p.Width, usual
	out := s.p.Out
	if k, ok := out.(*keeper); ok {
		out = k.to
	}
	if f, ok := out.(term.File); ok {
		if w, h, err := term.GetSize(f.Fd()); err == nil && w > 0 && h > 0 {
			width, height = w, h
		}
	}
	return width, height
}
