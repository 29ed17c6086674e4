// Package terminal writes the output of commands: tables and JSON to stdout,
// messages to stderr. It is the only place that knows whether the output is a
// terminal, and it removes control sequences that come from a sandbox.
//
// It must not know any command.
package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
)

// Printer is where a command writes.
type Printer struct {
	Out, Err io.Writer
	// JSON makes the answer one JSON object, or JSON lines.
	JSON bool
	// Color and ErrColor say that Out and Err take colors.
	Color, ErrColor bool
	// Live says that Err is a terminal on which lines can be written again, and
	// that says how many it has.
	Live bool
	// Again says the same of Out.
	Again bool
	// Width is how many columns Out has; 0: it is not a terminal, and lines are not
	// wrapped.
	Width int
}

// New is a printer; env is asked for NO_COLOR and TERM.
func New(stdout, stderr io.Writer, env func(string) (string, bool)) *Printer {
	color := true
	if v, ok := env("NO_COLOR"); ok && v != "" {
		color = false
	}
	name, known := env("TERM")
	smart := name != "dumb" && (name != "" || !known) // an empty name is that of no terminal
	color = color && smart
	return &Printer{
		Out: &keeper{to: stdout}, Err: stderr, Color: color && Terminal(stdout), ErrColor: color && Terminal(stderr),
		Live: smart && columns(stderr) > 0, Again: smart && columns(stdout) > 0, Width: columns(stdout),
	}
}

// Terminal says whether w is a terminal.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

// columns is the width of a terminal with room for something, else 0: those that
// programs make (script, containers) often have no size.
func columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, height, err := term.GetSize(f.Fd())
	if err != nil || height <= 0 {
		return 0
	}
	return max(width, 0)
}

// Answer writes v as JSON when that was asked for, and says whether it did.
func (p *Printer) Answer(v any) (bool, error) {
	if !p.JSON {
		return false, nil
	}
	enc := json.NewEncoder(&quiet{p.Out})
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return true, fmt.Errorf("write answer: %w", err)
	}
	return true, nil
}

// Line writes v as one line of JSON, for an answer that comes bit by bit.
func (p *Printer) Line(v any) error {
	enc := json.NewEncoder(&quiet{p.Out})
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// quiet writes JSON with the control characters escaped that an encoder leaves
// as they are, and that steer some terminals: DEL and those of the C1 set.
type quiet struct{ to io.Writer }

var loud = regexp.MustCompile("[\u007f-\u009f]")

func (q *quiet) Write(b []byte) (int, error) {
	said := loud.ReplaceAllFunc(b, func(c []byte) []byte {
		r, _ := utf8.DecodeRune(c)
		return fmt.Appendf(nil, `\u%04x`, r)
	})
	if _, err := q.to.Write(said); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Lost is why some of the answer could not be written; a reader that went away
// wanted no more of it.
func (p *Printer) Lost() error {
	if k, ok := p.Out.(*keeper); ok && !errors.Is(k.lost, syscall.EPIPE) {
		return k.lost
	}
	return nil
}

// Closed reports whether nothing more can be written to Out, such as when its
// reader went away.
func (p *Printer) Closed() bool {
	k, ok := p.Out.(*keeper)
	return ok && k.lost != nil
}

// keeper keeps the first error of writing, so that a command need not look
// after each line, and continues.
type keeper struct {
	to   io.Writer
	lost error
}

func (k *keeper) Write(b []byte) (int, error) {
	if k.lost == nil {
		_, k.lost = k.to.Write(b)
	}
	return len(b), nil
}

// Fail writes v as one line of JSON to stderr.
func (p *Printer) Fail(v any) error {
	enc := json.NewEncoder(&quiet{p.Err})
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write failure: %w", err)
	}
	return nil
}

// Printf writes to stdout. What the text holds does not steer the terminal, apart
// from colors, if the terminal takes them.
func (p *Printer) Printf(format string, args ...any) {
	var b strings.Builder
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		text, end := strings.CutSuffix(line, "\n")
		b.WriteString(steady(text, p.Color))
		if end {
			b.WriteByte('\n')
		}
	}
	fmt.Fprint(p.Out, b.String())
}

// Notef writes to stderr.
func (p *Printer) Notef(format string, args ...any) { fmt.Fprintf(p.Err, format, args...) }

// Style is a color that says something.
type Style string

// The styles, as SGR parameters.
const (
	Plain Style = ""
	Bold  Style = "1"
	Good  Style = "32"
	Bad   Style = "31"
	Odd   Style = "33"
	Faint Style = "2"
)

// Paint gives s a style, on a terminal.
func Paint(color bool, st Style, s string) string {
	if !color || st == Plain || s == "" {
		return s
	}
	return "\x1b[" + string(st) + "m" + s + "\x1b[0m"
}

// Clean makes s safe for a terminal and one line: control characters, which
// could move the cursor or rewrite what stands there, become spaces or marks.
func Clean(s string) string {
	return strings.Join(strings.FieldsFunc(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar:
			return '�'
		default:
			return r
		}
	}, strings.ToValidUTF8(s, "�")), func(r rune) bool { return r == ' ' }), " ")
}

// Lines is Clean for several lines, keeping indentation.
func Lines(s string) []string {
	var lines []string
	for l := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		l = strings.TrimRight(strings.ReplaceAll(l, "\t", "    "), "\r ")
		body := strings.TrimLeft(l, " ")
		lines = append(lines, l[:len(l)-len(body)]+tame(body))
	}
	return lines
}

// maxLine is how much of a line of a user's file, or of a message about it, is
// shown, in columns.
const maxLine = 400

// sgr is what colors a text and does nothing else to a terminal.
var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Explain writes what is wrong, with lines of the user's files, to stderr. What
// those hold does not steer the terminal.
func (p *Printer) Explain(what interface {
	WriteText(w io.Writer, color bool) error
},
) error {
	var b bytes.Buffer
	if err := what.WriteText(&b, p.ErrColor); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		p.Notef("%s\n", ends(steady(strings.TrimSuffix(line, "\n"), p.ErrColor), maxLine))
	}
	return nil
}

// steady is one line without what could steer a terminal; color says that colors
// stay in it.
func steady(line string, color bool) string {
	var shown strings.Builder
	at := 0
	if color {
		for _, found := range sgr.FindAllStringIndex(line, -1) {
			shown.WriteString(tame(line[at:found[0]]) + line[found[0]:found[1]])
			at = found[1]
		}
	}
	shown.WriteString(tame(line[at:]))
	return shown.String()
}

// tame replaces what is not a character of a text.
func tame(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
}

// Short is Clean, cut to width columns. Errors lose their cause this way: Ends is
// for them.
func Short(s string, width int) string { return ansi.Truncate(Clean(s), width, "…") }

// Ends is Clean without the middle of what is longer than width columns: the end
// of an error has its cause.
func Ends(s string, width int) string { return ends(Clean(s), width) }

// ends is Ends for what is clean already. Colors stay in it.
func ends(s string, width int) string {
	over := ansi.StringWidth(s) - width
	if over <= 0 {
		return s
	}
	begin := width / 3
	return ansi.Truncate(s, begin, "") + "…" + ansi.TruncateLeft(s, begin+over+1, "")
}

// Wrap breaks a line that is clean already at words, so that it fits into width
// columns, and indents what follows the first break. Width 0: no limit.
func Wrap(s string, width, indent int) string {
	if width == 0 {
		return s
	}
	const narrow = 20 // columns, also where less is left
	return strings.ReplaceAll(ansi.Wrap(s, max(width-indent, narrow), ""), "\n", "\n"+strings.Repeat(" ", indent))
}

// Hang prints a label and a text. On a terminal the text is wrapped at words, and
// all its lines begin where the first one does.
func (p *Printer) Hang(label, text string) {
	p.Printf("%s%s\n", label, Wrap(Clean(text), p.Width, ansi.StringWidth(label)))
}

// Seconds is a duration for people: 12.4 s, 3m05s, 2h10m.
func Seconds(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
}

// Count is n with the noun in the right number.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
