package tui

import (
	"fmt"
	"sync"
	"time"

	"github.com/berth-eval/berth/core/run"
)

// lines writes a line per finished trial, and a summary line now and then.
type lines struct {
	mu   sync.Mutex
	s    *state
	stop chan struct{}
	wait sync.WaitGroup
}

func newLines(s *state) *lines {
	l := &lines{s: s, stop: make(chan struct{})}
	l.wait.Go(l.tick)
	return l
}

func (l *lines) tick() {
	t := time.NewTicker(l.s.o.Every)
	defer t.Stop()
	for {
		select {
		case <-l.stop:
			return
		case now := <-t.C:
			l.mu.Lock()
			fmt.Fprintln(l.s.o.Err, l.s.summary(now))
			l.mu.Unlock()
		}
	}
}

// Event implements Watcher.
func (l *lines) Event(e run.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.s.take(e) {
		fmt.Fprintln(l.s.o.Err, line)
	}
}

// Write implements Watcher.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s.o.Err.Write(p)
}

// Close implements Watcher.
func (l *lines) Close() {
	close(l.stop)
	l.wait.Wait()
}
