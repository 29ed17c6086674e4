// Package screen is a terminal as a person would use it: what is typed goes to
// a program in the sandbox, and what that prints becomes a screen with a
// history. All of it is on the host; the sandbox needs nothing but a program.
//
// It must not know a model or a protocol. The bytes that it reads are hostile.
package screen

import (
	"io"
	"strings"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
)

// Screen is what a terminal shows. Methods are not safe for concurrent use.
type Screen interface {
	// Write takes output of a program. It never fails, whatever comes.
	Write(b []byte) (int, error)
	// Lines are the visible lines without blanks at their ends, and without
	// blank lines at the bottom.
	Lines() []string
	// Scrolled are the lines that have left the screen at the top since it was
	// last asked, the oldest first. Ask after each Write: few are kept.
	Scrolled() []string
	// Modes are the modes that matter to whoever looks or types.
	Modes() Modes
	// Close ends the screen.
	Close()
}

// Modes of a screen.
type Modes struct {
	Alternate  bool // a program has the whole screen, such as an editor
	CursorKeys bool // arrow keys are sent as the application wants them
	Margins    bool // only a part of the screen scrolls, or may
	CursorRow  int  // from 0
}

// Bounds of what output can make the emulator do.
const (
	piece      = 4 << 10 // bytes that are written between two looks at the history
	maxHistory = 2 * piece
	maxRepeat  = 250 // how often one sequence may repeat something; more than most screens are wide
)

// emulator implements Screen with a library. A program that makes the library
// fail gets a fresh screen.
type emulator struct {
	rows, columns int
	answer        func([]byte)

	vt         *vt.Emulator
	cursorKeys bool
	margins    bool
	drained    chan struct{}
}

// New makes a screen. answer gets what the terminal answers to a program that
// asks it something; it must not block, and is called from another goroutine.
func New(rows, columns int, answer func([]byte)) Screen {
	e := &emulator{rows: rows, columns: columns, answer: answer}
	e.begin()
	return e
}

func (e *emulator) begin() {
	e.vt = vt.NewEmulator(e.columns, e.rows)
	e.vt.SetScrollbackSize(maxHistory)
	e.cursorKeys, e.margins = false, false
	e.vt.SetCallbacks(vt.Callbacks{
		EnableMode:  func(m ansi.Mode) { e.setMode(m, true) },
		DisableMode: func(m ansi.Mode) { e.setMode(m, false) },
	})
	for _, final := range "@ABCDEFGILMPSTXYZabde" {
		e.vt.RegisterCsiHandler(int(final), tooOften)
	}
	for _, final := range "rs" {
		e.vt.RegisterCsiHandler(int(final), func(params ansi.Params) bool {
			e.margins = len(params) > 0
			return false
		})
	}
	e.drained = make(chan struct{})
	go func(from *vt.Emulator, drained chan struct{}) {
		defer close(drained)
		b := make([]byte, 256)
		for {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			e.answer(append([]byte(nil), b[:n]...))
		}
	}(e.vt, e.drained)
}

// tooOften swallows a sequence that would repeat something more often than any
// screen is large: a few bytes must not keep us busy.
func tooOften(params ansi.Params) bool {
	n, _, _ := params.Param(0, 1)
	return n > maxRepeat
}

func (e *emulator) setMode(m ansi.Mode, on bool) {
	if m == ansi.ModeCursorKeys {
		e.cursorKeys = on
	}
}

// Write implements Screen.
func (e *emulator) Write(b []byte) (n int, err error) {
	defer func() {
		if recover() != nil { // a bug of the library, met by what a program printed
			e.Close()
			e.begin()
			n, err = len(b), nil
		}
	}()
	return e.vt.Write(b)
}

// Lines implements Screen.
func (e *emulator) Lines() []string {
	out := make([]string, 0, e.rows)
	for y := range e.vt.Height() {
		line := make(uv.Line, 0, e.columns)
		for x := range e.vt.Width() {
			if c := e.vt.CellAt(x, y); c != nil {
				line = append(line, *c)
			}
		}
		out = append(out, text(line))
	}
	for len(out) > 0 && out[len(out)-1] == "" {
		out = out[:len(out)-1]
	}
	return out
}

func text(line uv.Line) string { return strings.TrimRight(line.String(), " ") }

// Scrolled implements Screen.
func (e *emulator) Scrolled() []string {
	history := e.vt.Scrollback()
	if history.Len() == 0 {
		return nil
	}
	out := make([]string, 0, history.Len())
	for _, line := range history.Lines() {
		out = append(out, text(line))
	}
	history.Clear()
	return out
}

// Modes implements Screen.
func (e *emulator) Modes() Modes {
	return Modes{Alternate: e.vt.IsAltScreen(), CursorKeys: e.cursorKeys, Margins: e.margins, CursorRow: e.vt.CursorPosition().Y}
}

// Close implements Screen.
func (e *emulator) Close() {
	// The library's own Close races with its Read: end that first.
	if c, ok := e.vt.InputPipe().(io.Closer); ok {
		_ = c.Close() // of a pipe: it never fails
		<-e.drained
	}
	_ = e.vt.Close() // likewise
}
