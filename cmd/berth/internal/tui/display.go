package tui

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/run"
)

// maxShown is how many attempts the block lists.
const maxShown = 8

// hang is how far the further lines of a row are indented, in columns.
const hang = 4

// display writes a line per finished trial. On a terminal it keeps the attempts that
// are under way below them, and elsewhere it writes a summary line now and then.
type display struct {
	mu     sync.Mutex
	s      *state
	screen *terminal.Screen // of the block; nil: there is none
	stop   chan struct{}
	wait   sync.WaitGroup
}

func newDisplay(s *state) *display {
	d := &display{s: s, stop: make(chan struct{})}
	every := s.o.Every
	if s.o.Block {
		every = 200 * time.Millisecond
		d.screen = (&terminal.Printer{Out: s.o.Err, Again: true, Width: 80}).Screen()
	}
	d.wait.Go(func() { d.tick(every) })
	return d
}

func (d *display) tick(every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-d.stop:
			return
		case now := <-t.C:
			d.mu.Lock()
			if d.screen != nil {
				d.print(nil)
			} else {
				d.print([]string{d.s.summary(now)})
			}
			d.mu.Unlock()
		}
	}
}

// print prints lines that stay: above the block, if there is one. The caller holds the
// lock.
func (d *display) print(lines []string) {
	if d.screen == nil {
		for _, line := range lines {
			fmt.Fprintln(d.s.o.Err, line)
		}
		return
	}
	d.screen.Lines(func(width, height int) (above, block []string) {
		for _, line := range lines { // what the terminal wraps is not counted right
			above = append(above, terminal.Wrap(line, width, hang))
		}
		return above, d.s.block(time.Now(), width, height)
	})
}

// block returns the attempts that are under way, and the summary.
func (s *state) block(now time.Time, width, height int) (rows []string) {
	sum := strings.Split(terminal.Wrap(s.summary(now), width, hang), "\n")
	for i, id := range s.order {
		a := s.running[id]
		row := fmt.Sprintf("  %s  %-10s %8s", a.name, a.phase, terminal.Seconds(now.Sub(a.since)))
		if a.steps > 0 {
			row += "  " + terminal.Count(a.steps, "step", "steps")
		}
		more := strings.Split(terminal.Wrap(row, width, hang), "\n")
		if i == maxShown || i > 0 && len(rows)+len(more)+len(sum)+2 > height { // one line for the rest, and one below the block
			rows = append(rows, fmt.Sprintf("  … and %d more", len(s.order)-i))
			break
		}
		rows = append(rows, more...)
	}
	for i, r := range rows {
		rows[i] = terminal.Paint(s.o.Color, terminal.Faint, r)
	}
	return append(rows, sum...)
}

// Event implements Watcher.
func (d *display) Event(e run.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.print(d.s.take(e))
}

// Write implements Watcher.
func (d *display) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.print(strings.Split(strings.TrimRight(string(p), "\n"), "\n"))
	return len(p), nil
}

// Close implements Watcher. The summary of the block stays as the last line.
func (d *display) Close() {
	close(d.stop)
	d.wait.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.s.order = nil; d.screen != nil {
		d.print(nil)
		d.screen = nil
	}
}
