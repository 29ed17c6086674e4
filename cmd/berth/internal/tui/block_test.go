package tui

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/testlevel"
)

// fakeTerminal keeps what is written to it.
type fakeTerminal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *fakeTerminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *fakeTerminal) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// Names are whole: a row that is wider than the terminal is wrapped, and the block
// is not higher than the terminal.
func TestTheBlockCutsNoName(t *testing.T) {
	t.Parallel()
	task := "organization/" + strings.Repeat("a-long-name-", 12) + "end"
	cell := "agent=" + strings.Repeat("claude-", 8) + "x"
	s := newState(Options{Block: true, Cells: []string{cell}, Tasks: []string{task}})
	b := &block{s: s, width: 60, height: 24}
	for i := range 6 {
		s.take(run.Event{Kind: run.Began, Trial: &plan.Trial{Trial: store.Trial{ID: fmt.Sprint(i), Task: task, Repetition: 1}}, To: 6})
	}
	for height, shown := range map[int]int{40: 6, 24: 4, 10: 1, 3: 1} {
		b.height = height
		text := b.View().Content
		rows := strings.Split(text, "\n")
		whole := strings.Join(strings.Fields(text), "")
		if strings.Count(whole, task) != shown || strings.Count(whole, cell) != shown {
			t.Errorf("%d lines show %d tasks, want %d:\n%s", height, strings.Count(whole, task), shown, text)
		}
		if strings.Contains(text, fmt.Sprintf("… and %d more", 6-shown)) != (shown < 6) || !strings.Contains(rows[len(rows)-1], "0 of 6 done") {
			t.Errorf("%d lines:\n%s", height, text)
		}
		for _, row := range rows {
			if len([]rune(row)) > 60 || len(rows) > max(height, 7) {
				t.Errorf("%d lines, row of %d columns: %q", len(rows), len([]rune(row)), row)
			}
		}
	}
}

// A line of the log goes above the block: the display makes room for it, so it
// ends with the sequence that the display ends its lines with, and is as wide as
// the terminal at most.
func TestALineOfTheLogGoesAboveTheBlock(t *testing.T) {
	t.Parallel()
	term := &fakeTerminal{}
	w := New(Options{Err: term, Block: true, Cells: []string{"a"}, Tasks: []string{"one"}})
	w.Event(run.Event{Kind: run.Began, Trial: &plan.Trial{Trial: store.Trial{ID: "one", Task: "one", Repetition: 1}}, To: 1})
	log := zerolog.New(zerolog.ConsoleWriter{Out: w, NoColor: true})
	const said = "model x: connection refused by 127.0.0.1:9, trying again in 1 s, up to 10 min, and a line that is longer than the terminal is wide"
	log.Warn().Msg(said)
	testlevel.Eventually(t, "the line is shown", func() bool { return strings.Contains(term.String(), "connection refused") })
	w.Close()
	n, err := fmt.Fprint(w, "after the end\n") // is lost, but blocks nobody
	if n == 0 || err != nil {
		t.Error(n, err)
	}
	got := term.String()
	i := strings.Index(got, "connection refused")
	if i < 0 {
		t.Fatalf("the terminal shows %q", got)
	}
	line, _, _ := strings.Cut(got[i:], "\n")
	if !strings.HasSuffix(line, "\x1b[K\r") || len(line) > 80+len("\x1b[K\r") || !strings.Contains(got, "terminal is wide\x1b[K\r\n") {
		t.Errorf("the terminal shows %q", got[i:])
	}
}
