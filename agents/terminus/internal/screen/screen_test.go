package screen

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/berth-eval/berth/plugins/agent/asciicast"
)

// pipe is a wire: what the test prints is read, what is typed is kept.
type pipe struct {
	*io.PipeReader
	out   *io.PipeWriter
	typed chan string
}

func newPipe() *pipe {
	r, w := io.Pipe()
	return &pipe{PipeReader: r, out: w, typed: make(chan string, 100)}
}

func (p *pipe) Write(b []byte) (int, error) {
	select {
	case p.typed <- string(b):
	default:
	}
	return len(b), nil
}

func (p *pipe) print(t *testing.T, s string) {
	t.Helper()
	for _, part := range []string{s, ""} { // nothing is taken only when what came before it is on its way
		if _, err := io.WriteString(p.out, part); err != nil {
			t.Fatal(err)
		}
	}
}

func start(t *testing.T, limit int, cast *asciicast.Cast) (*TTY, *pipe) {
	t.Helper()
	p := newPipe()
	tty := NewTTY(Options{Rows: 5, Columns: 40, Limit: limit, Cast: cast})
	tty.Attach(p)
	t.Cleanup(func() {
		_ = p.out.CloseWithError(io.EOF)
		tty.Detach()
		_ = tty.Close()
	})
	return tty, p
}

// wait waits until all that was printed is shown.
func wait(t *testing.T, tty *TTY) {
	t.Helper()
	if err := tty.Wait(t.Context(), 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
}

func TestALookGoesOnWhereTheLastOneEnded(t *testing.T) {
	t.Parallel()
	tty, p := start(t, 1000, nil)
	for i, tt := range []struct {
		print string
		want  View
	}{
		{"$ ", View{Text: "$"}},
		{"ls\r\na  b\r\n$ ", View{Text: "$ ls\na  b\n$"}},
		{"", View{Whole: true, Unchanged: true, Text: "$ ls\na  b\n$"}},
		{"seq 9\r\n1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7\r\n8\r\n9\r\n$ ", View{Text: "$ seq 9\n1\n2\n3\n4\n5\n6\n7\n8\n9\n$"}},
		{"\x1b[H\x1b[2J$ ", View{Text: "$"}}, // clear: what was there scrolled by
		{"vi\r\n", View{Text: "$ vi"}},
		{"\x1b[?1049h\x1b[H\x1b[2J~\r\n~ insert", View{Whole: true, Text: "~\n~ insert"}},
		{"\x1b[?1049l$ ", View{Text: "$"}},
		{"\x1b[1;1Hdrawn", View{Whole: true, Text: "drawn\n$"}},
	} {
		p.print(t, tt.print+"\x1b[m") // an empty print would not be a write
		wait(t, tty)
		if got := tty.Look(); got != tt.want {
			t.Errorf("look %d: got %+v, want %+v", i, got, tt.want)
		}
	}
}

func TestABurstIsShownByItsEndsAndCounted(t *testing.T) {
	t.Parallel()
	tty, p := start(t, 1000, nil)
	var b strings.Builder
	b.WriteString("$ seq 1000000\r\n")
	for i := 1; i <= 1000000; i++ {
		fmt.Fprintf(&b, "%d\r\n", i)
	}
	b.WriteString("$ ")
	p.print(t, b.String())
	wait(t, tty)
	v := tty.Look()
	if !strings.HasPrefix(v.Text, "$ seq 1000000\n1\n2\n3\n") || !strings.HasSuffix(v.Text, "\n999999\n1000000\n$") || len(v.Text) > 1100 {
		t.Errorf("got %d bytes: %q", len(v.Text), v.Text)
	}
	if shown := strings.Count(v.Text, "\n") + 1 - 1; v.Lines+shown != 1000002 {
		t.Errorf("%d lines are shown and %d left out; want 1000002 together", shown, v.Lines)
	}
	p.print(t, "echo on\r\non\r\n$ ")
	wait(t, tty)
	if v = tty.Look(); v.Text != "$ echo on\non\n$" || v.Lines != 0 {
		t.Errorf("afterwards: got %+v", v)
	}
}

func TestOneLongLineIsCut(t *testing.T) {
	t.Parallel()
	v := limited([]string{strings.Repeat("ä", 1000)}, nil, 0, 0, 100)
	if !utf8.ValidString(v.Text) || len(v.Text) > 300 || !strings.Contains(v.Text, "left out") {
		t.Errorf("got %q", v.Text)
	}
}

func TestKeysAreWhatTheyAreCalled(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"ls\n": "ls\r", "a\r\nb\n": "a\nb\n", "\n": "\r", "\n\n": "\n\n", "Enter": "\r", "C-c": "\x03", "C-C": "\x03", "^D": "\x04", "C-[": "\x1b", "C-Space": "\x00", "C-?": "\x7f",
		"Escape": "\x1b", "M-x": "\x1bx", "M-Up": "\x1b\x1b[A", "Up": "\x1b[A", "F5": "\x1b[15~", "M-": "M-", "C-cc": "C-cc", "^": "^", "Enter the room": "Enter the room", "": "",
	} {
		if got := string(Keys(in, Modes{})); got != want {
			t.Errorf("Keys(%q) = %q, want %q", in, got, want)
		}
	}
	if got := string(Keys("Up", Modes{CursorKeys: true})); got != "\x1bOA" {
		t.Errorf("Up for an application = %q", got)
	}
	if got := string(Keys("iab\ncd\n", Modes{Alternate: true})); got != "iab\rcd\r" {
		t.Errorf("lines for an editor = %q", got)
	}
}

func TestTheTerminalAnswersPrograms(t *testing.T) {
	t.Parallel()
	tty, p := start(t, 1000, nil)
	p.print(t, "ab\x1b[6n\x1b[?1h")
	select {
	case got := <-p.typed:
		if got != "\x1b[1;3R" {
			t.Errorf("got %q, want the place of the cursor", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("no answer")
	}
	wait(t, tty)
	if err := tty.Type("Down"); err != nil {
		t.Fatal(err)
	}
	if got := <-p.typed; got != "\x1bOB" {
		t.Errorf("typed %q, want the key as the application wants it", got)
	}
}

func TestHostileOutputTakesBoundedTime(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{
		"a\x1b[2147483647b", "\x1b[2147483647L", "\x1b[2147483647M", "\x1b[2147483647@", "\x1b[2147483647P", "\x1b[2147483647S", "\x1b[2147483647T",
		"\x1b[2147483647I", "\x1b[2147483647Z", "\x1b[2147483647X", "\x1b[2147483647;2147483647H", "\x1b[2147483647B", "a\x1b[999b", "\x1b[999I", "\x1b[999Z",
		"\x1b[5;1r\x1b[0;0H\x1bM", "\x1b[6n", "\x1b]0;", "\x1bP", "\x1b#8\x1b[2J", "\xff\xfe", "e\u0301\u0301", "\x1b[38;2;1;2;3;4;5;6;7;8m", "\x1b[8;99999;99999t", "\x1b[?1049h\x1b[?1049l",
	} {
		t.Run(fmt.Sprintf("%q", unit), func(t *testing.T) {
			t.Parallel()
			s := New(40, 160, func([]byte) {})
			defer s.Close()
			begun := time.Now()
			out := bytes.Repeat([]byte(unit), piece/8/len(unit)+1)
			_, _ = s.Write(out)
			s.Scrolled()
			s.Lines()
			if took := time.Since(begun); took > 2*time.Minute { // the promise: output costs its length, not what it asks for
				t.Errorf("%d bytes took %v", len(out), took)
			}
		})
	}
}

func TestTheRecordingIsAsciicast(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.cast")
	c, err := asciicast.New(path, "trial/1/agent-1", 5, 40, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	euro := []byte("€")
	c.Output(append([]byte("a"), euro[:1]...))
	c.Output(append(euro[1:], 0xff))
	c.Input([]byte("ls\r"))
	c.Mark("step 1")
	if seen, readErr := os.ReadFile(path); readErr != nil || !strings.Contains(string(seen), `"title":"trial/1/agent-1"`) || !strings.Contains(string(seen), `"o","€`) {
		t.Errorf("whoever watches sees %q, %v", seen, readErr)
	}
	if err = c.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Scan()
	var head struct{ Version, Width, Height int }
	if err := json.Unmarshal(lines.Bytes(), &head); err != nil || head.Version != 2 || head.Width != 40 || head.Height != 5 {
		t.Errorf("header %s: %v", lines.Text(), err)
	}
	var got []string
	last := -1.0
	for lines.Scan() {
		var e []any
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || len(e) != 3 {
			t.Fatalf("event %s: %v", lines.Text(), err)
		}
		at, ok := e[0].(float64)
		if !ok || at < last {
			t.Errorf("event %s is not later than %v", lines.Text(), last)
		}
		last = at
		got = append(got, fmt.Sprint(e[1:]...))
	}
	if want := []string{"oa", "o€\uFFFD", "ils\r", "mstep 1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheEndOfTheProgramIsKnown(t *testing.T) {
	t.Parallel()
	tty, p := start(t, 1000, nil)
	p.print(t, "bye\r\n")
	if ended, _ := tty.Ended(); ended {
		t.Error("ended before the end")
	}
	_ = p.out.CloseWithError(io.EOF)
	if err := tty.Wait(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if ended, err := tty.Ended(); !ended || err != nil {
		t.Errorf("got %v, %v; want the end", ended, err)
	}
	if got := tty.Look().Text; got != "bye" {
		t.Errorf("got %q; want the last words", got)
	}
	tty.Detach()
	tty.Clear()
	next := newPipe()
	tty.Attach(next)
	next.print(t, "again")
	_ = next.out.CloseWithError(errors.New("lost"))
	wait(t, tty)
	if got := tty.Look().Text; got != "again" {
		t.Errorf("after a new start: got %q", got)
	}
	if _, err := tty.Ended(); err == nil {
		t.Error("a terminal that is lost ended without an error")
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	tty, _ := start(t, 1000, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tty.Wait(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
