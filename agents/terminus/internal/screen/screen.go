// Package screen is a terminal like one that a person uses: keystrokes go to a
// program in the sandbox, and its output becomes a screen with a history. All
// of it is on the host. The sandbox needs only the program.
//
// It must not know a model or a protocol. The bytes that it reads cannot be
// trusted.
package screen

import (
	"io"
	"strings"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
)

// Modes of a screen.
type Modes struct {
	Alternate  bool // a program uses the whole screen, such as an editor
	CursorKeys bool // the application has asked for its own form of arrow keys
}

// Limits on the work that output can cause in the emulator.
const (
	piece      = 4 << 10 // bytes that are written before the history is read again
	maxHistory = 2 * piece
	maxRepeat  = 250 // how often one sequence may repeat an action; more than most screens are wide
)

// Screen is the contents of a terminal. If a program's output makes the library
// panic, it continues with a new screen. Methods are not safe for concurrent use.
type Screen struct {
	rows, columns int
	answer        func([]byte)

	vt         *vt.Emulator
	cursorKeys bool
	drained    chan struct{}
}

// New makes a screen. answer is called with the terminal's answers to requests
// of a program. It must not block, and is called from another goroutine.
func New(rows, columns int, answer func([]byte)) *Screen {
	e := &Screen{rows: rows, columns: columns, answer: answer}
	e.begin()
	return e
}

func (e *Screen) begin() {
	e.vt = vt.NewEmulator(e.columns, e.rows)
	e.vt.SetScrollbackSize(maxHistory)
	e.cursorKeys = false
	e.vt.SetCallbacks(vt.Callbacks{
		EnableMode:  func(m ansi.Mode) { e.cursorKeys = e.cursorKeys || m == ansi.ModeCursorKeys },
		DisableMode: func(m ansi.Mode) { e.cursorKeys = e.cursorKeys && m != ansi.ModeCursorKeys },
	})
	for _, final := range "@ABCDEFGILMPSTXYZabde" {
		e.vt.RegisterCsiHandler(int(final), tooOften)
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

// tooOften drops a sequence that would repeat an action more often than any
// screen is large, because a few bytes must not cause much work.
func tooOften(params ansi.Params) bool {
	n, _, _ := params.Param(0, 1)
	return n > maxRepeat
}

// Write processes output of a program. It never fails.
func (e *Screen) Write(b []byte) (n int, err error) {
	defer func() {
		if recover() != nil { // a bug in the library, caused by a program's output
			e.Close()
			e.begin()
			n, err = len(b), nil
		}
	}()
	return e.vt.Write(b)
}

// Lines returns the visible lines without trailing blanks, and without blank lines at
// the bottom.
func (e *Screen) Lines() []string {
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

// Scrolled returns the lines that have left the screen at the top since the last call,
// oldest first. Call it after each Write, because few are kept.
func (e *Screen) Scrolled() []string {
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

// Modes returns the modes that matter for looking and typing.
func (e *Screen) Modes() Modes {
	return Modes{Alternate: e.vt.IsAltScreen(), CursorKeys: e.cursorKeys}
}

// Close ends the screen.
func (e *Screen) Close() {
	// The library's own Close races with its Read, so end Read first.
	if c, ok := e.vt.InputPipe().(io.Closer); ok {
		_ = c.Close() // closing a pipe never fails
		<-e.drained
	}
	_ = e.vt.Close() // likewise
}
