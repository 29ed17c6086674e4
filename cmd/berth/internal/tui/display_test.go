package tui

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
)

// Names are whole: a row that is wider than the terminal is wrapped, and the block
// is not higher than the terminal.
func TestTheBlockCutsNoName(t *testing.T) {
	t.Parallel()
	task := "organization/" + strings.Repeat("a-long-name-", 12) + "end"
	cell := "agent=" + strings.Repeat("claude-", 8) + "x"
	s := newState(Options{Block: true, Cells: []string{cell}, Tasks: []string{task}})
	for i := range 6 {
		s.take(run.Event{Kind: run.Began, Trial: &plan.Trial{Trial: store.Trial{ID: fmt.Sprint(i), Task: task, Repetition: 1}}, To: 6})
	}
	for height, shown := range map[int]int{40: 6, 24: 4, 10: 1, 3: 1} {
		rows := s.block(time.Now(), 60, height)
		text := strings.Join(rows, "\n")
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

// A line of the log goes above the block, and is as wide as the terminal at most.
func TestALineOfTheLogGoesAboveTheBlock(t *testing.T) {
	t.Parallel()
	var term bytes.Buffer
	w := New(Options{Err: &term, Block: true, Cells: []string{"a"}, Tasks: []string{"one"}})
	w.Event(run.Event{Kind: run.Began, Trial: &plan.Trial{Trial: store.Trial{ID: "one", Task: "one", Repetition: 1}}, To: 1})
	fmt.Fprintln(w, "model x: connection refused by 127.0.0.1:9, trying again in 1 s, up to 10 min, and a line that is longer than the terminal is wide")
	w.Close()
	fmt.Fprint(w, "after the end\n")
	_, got, _ := strings.Cut(term.String(), "\x1b[2A\r\x1b[Jmodel x: ") // over the block of two lines
	line, rest, _ := strings.Cut(got, "\n")
	if len(line) > 80 || !strings.Contains(rest, "terminal is wide\n  one ") || !strings.HasSuffix(rest, "0 of 1 done; 1 running\nafter the end\n") {
		t.Errorf("the terminal shows %q", term.String())
	}
}
