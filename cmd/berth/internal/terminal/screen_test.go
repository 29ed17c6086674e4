package terminal_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
)

// A text that does not fit the terminal would scroll, and the next one could not
// replace it.
func TestAScreenIsReplacedAndFitsTheTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &terminal.Printer{Out: &out, Again: true, Width: 10}
	s := p.Screen()
	s.Show(func(p *terminal.Printer) { p.Printf("one\ntwo is longer than it\n\n") })
	if got, want := out.String(), "one\ntwo is lo…\n"; got != want {
		t.Errorf("the first text is %q, want %q", got, want)
	}
	out.Reset()
	s.Show(func(p *terminal.Printer) {
		for i := range 30 {
			p.Printf("%d\n", i)
		}
	})
	var want strings.Builder
	want.WriteString("\x1b[2A\r\x1b[J") // up two lines, and erase what is below
	for i := range 22 {
		fmt.Fprintf(&want, "%d\n", i)
	}
	want.WriteString("… and 8 m…\n")
	if got := out.String(); got != want.String() {
		t.Errorf("the second text is %q, want %q", got, want.String())
	}
	out.Reset()
	s.Clear()
	s.Clear()
	if got := out.String(); got != "\x1b[23A\r\x1b[J" {
		t.Errorf("it is removed by %q", got)
	}
	p.Again = false
	if p.Screen() != nil {
		t.Error("there is a screen on what is not a terminal")
	}
}
