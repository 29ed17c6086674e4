package terminal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
)

// What comes out of a sandbox must not steer the terminal: clear it, rewrite
// lines, set its title, or be sent back as if it was typed.
func TestCleanTakesTheTerminalAway(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain":                        "plain",
		"a\nb\r\nc\td":                 "a b c d",
		"\x1b[2J\x1b[Hpassed":          "�[2J�[Hpassed",
		"\x1b]0;title\x07x":            "�]0;title�x",
		"\u009b31mred":                 "�31mred",
		"right\u202eto left\u202c":     "right�to left�",
		"bad \xff\xfe bytes":           "bad � bytes",
		"  spaces   are   one  ":       "spaces are one",
		"wide 日本 and e\u0301 are kept": "wide 日本 and e\u0301 are kept",
	} {
		if got := terminal.Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzNothingControlsTheTerminal(f *testing.F) {
	f.Add("\x1b[31m")
	f.Add("a\u202eb\x00")
	f.Fuzz(func(t *testing.T, s string) {
		for _, got := range append(terminal.Lines(s), terminal.Clean(s), terminal.Short(s, 20)) {
			if i := strings.IndexFunc(got, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }); i >= 0 {
				t.Errorf("%q became %q", s, got)
			}
		}
	})
}

func TestLinesKeepTheirIndentation(t *testing.T) {
	t.Parallel()
	got := terminal.Lines("a\n  b\x1b[K\n\tc  \n\n")
	if want := []string{"a", "  b�[K", "    c"}; strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTablesAreAlignedByColumnsOfTheScreen(t *testing.T) {
	t.Parallel()
	tab := terminal.Table{Head: []string{"name", "n", "note"}, Right: []bool{1: true}}
	tab.Row("日本", "7", "wide")
	tab.Row(terminal.Paint(true, terminal.Good, "good"), "123", "painted")
	tab.Row("x", "1", "")
	var b bytes.Buffer
	tab.Write(&terminal.Printer{Out: &b})
	want := "name    n  note\n日本    7  wide\n\x1b[32mgood\x1b[0m  123  painted\nx       1\n"
	if b.String() != want {
		t.Errorf("got\n%q\nwant\n%q", b.String(), want)
	}
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0.0 s", 12400 * time.Millisecond: "12.4 s", 185 * time.Second: "3m05s", 130 * time.Minute: "2h10m",
	} {
		if got := terminal.Seconds(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

// Some terminals obey the control characters above ASCII, which JSON allows.
func TestJSONDoesNotSteerTheTerminal(t *testing.T) {
	t.Parallel()
	const hostile = "a\u009b31m\u0085\x7f\x1b[31m\u00a0é"
	var b, e bytes.Buffer
	p := &terminal.Printer{Out: &b, Err: &e, JSON: true}
	if _, err := p.Answer(hostile); err != nil {
		t.Fatal(err)
	}
	if err := p.Fail(hostile); err != nil {
		t.Fatal(err)
	}
	const want = `"a\u009b31m\u0085\u007f\u001b[31m` + "\u00a0é\"\n"
	if b.String() != want || e.String() != want {
		t.Errorf("got %q and %q, want %q", b.String(), e.String(), want)
	}
	var back string
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back != hostile {
		t.Errorf("read back: %q, %v", back, err)
	}
}

// text is an explanation.
type text string

func (s text) WriteText(w io.Writer, color bool) error {
	if color {
		s = "\x1b[1m" + s + "\x1b[0m"
	}
	_, err := io.WriteString(w, string(s)+"\n")
	return err
}

// A line of a file is shown as it is, but for what would steer the terminal,
// and without its middle when nobody could read it: the end has the cause.
func TestExplanationsDoNotSteerTheTerminal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in    text
		color bool
		want  string
	}{
		{"\ta = 1", false, "\ta = 1\n"},
		{"a\x1b[2J\x1b[31m\xff", false, "a�[2J�[31m�\n"},
		{"a\x1b[2J", true, "\x1b[1ma�[2J\x1b[0m\n"},
		{text(strings.Repeat("x", 1000) + " why"), false, strings.Repeat("x", 133) + "…" + strings.Repeat("x", 262) + " why\n"},
		{text(strings.Repeat("x", 1000) + " why"), true, "\x1b[1m" + strings.Repeat("x", 133) + "\x1b[0m…\x1b[1m" + strings.Repeat("x", 262) + " why\x1b[0m\n"},
	} {
		var b bytes.Buffer
		p := &terminal.Printer{Err: &b, ErrColor: tt.color}
		if err := p.Explain(tt.in); err != nil || b.String() != tt.want {
			t.Errorf("%q: %q, %v; want %q", tt.in, b.String(), err, tt.want)
		}
	}
}

// full is a disk.
type full struct{ err error }

func (f full) Write([]byte) (int, error) { return 0, f.err }

func TestAnAnswerThatIsLostIsNoticed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ err, want error }{{syscall.ENOSPC, syscall.ENOSPC}, {syscall.EPIPE, nil}, {nil, nil}} {
		p := terminal.New(full{tt.err}, io.Discard, func(string) (string, bool) { return "", false })
		p.Printf("one\n")
		p.Printf("two\n")
		if got := p.Lost(); !errors.Is(got, tt.want) {
			t.Errorf("%v: got %v, want %v", tt.err, got, tt.want)
		}
	}
}

// Whatever a command forgets to clean does not reach the terminal as it is.
func TestTextDoesNotSteerTheTerminal(t *testing.T) {
	t.Parallel()
	for _, color := range []bool{false, true} {
		var out bytes.Buffer
		p := &terminal.Printer{Out: &out, Color: color}
		p.Printf("%s\t%s\n", terminal.Paint(color, terminal.Bold, "title"), "a\x1b]0;x\x07\r\u202eb")
		table := terminal.Table{Head: []string{"id"}}
		table.Row("c\x1b[2J\nd")
		table.Write(p)
		got := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(out.String(), "")
		if color == (got == out.String()) {
			t.Errorf("color %t: colors are in %q", color, &out)
		}
		if strings.ContainsAny(got, "\x1b\x07\r\u202e") || strings.Count(got, "\n") != 3 || !strings.Contains(got, "title\t") {
			t.Errorf("color %t: %q", color, got)
		}
	}
}

// The cause of an error stands at its end.
func TestEndsKeepsTheEnd(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"short": "short", "image build failed: Dockerfile in DIR: no space left": "image b…no space left", "日本日本日本日本日本日本": "日本日…本日本日本日本"} {
		if got := terminal.Ends(in, 21); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// On a terminal no cell is cut and no line is too long; elsewhere a row is one
// line.
func TestTablesFitTheTerminalAndCutNothing(t *testing.T) {
	t.Parallel()
	const why = "environment: image build failed: Dockerfile in tasks/one: step 3 ended with 127: no such program: gcc"
	for _, width := range []int{0, 60, 80, 200} {
		tab := terminal.Table{Head: []string{"task", "of measured", "ended by budget", "note"}, Right: []bool{1: true, 2: true}, Below: true}
		tab.Row("organization/task-with-a-very-long-name-that-matters", "50.0% (1/2)", "1", why)
		var b bytes.Buffer
		tab.Write(&terminal.Printer{Out: &b, Width: width})
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		for _, l := range lines {
			if width > 0 && ansi.StringWidth(l) > width {
				t.Errorf("width %d: %q is too long", width, l)
			}
		}
		text := strings.Join(strings.Fields(b.String()), " ")
		if !strings.Contains(text, why) || !strings.Contains(text, "50.0% (1/2)") || strings.Contains(text, "…") {
			t.Errorf("width %d: something is cut or torn:\n%s", width, &b)
		}
		if one := len(lines) == 2; one != (width == 0 || width == 200) {
			t.Errorf("width %d: %d lines:\n%s", width, len(lines), &b)
		}
	}
}

func TestTextHangsFromItsLabel(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := &terminal.Printer{Out: &b, Width: 30}
	p.Hang("error     ", "no such program in the image: gcc")
	p.Width = 0
	p.Hang("error     ", "no such program in the image: gcc")
	want := "error     no such program in\n          the image: gcc\nerror     no such program in the image: gcc\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &b, want)
	}
}
