package screen

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/berth-eval/berth/plugins/agent/asciicast"
)

const (
	readSize = 32 << 10 // bytes of one read
	// settle is the longest time that a look waits until the output read so far
	// is shown.
	settle = 15 * time.Second
)

// Options of a TTY.
type Options struct {
	Rows, Columns int
	Limit         int             // of a view, in bytes
	Cast          *asciicast.Cast // nil: no recording
}

// TTY is a terminal to look at and to type into. Its screen outlives the wires
// that it is attached to. Look, Type and Wait may be called from only one
// goroutine at a time.
type TTY struct {
	o       Options
	answers chan []byte

	mu     sync.Mutex // guards screen and looker
	screen *Screen
	looker looker

	wire    io.ReadWriter
	backlog backlog
	more    chan struct{} // the backlog has something
	ended   chan struct{}
	err     error // why reading ended; valid after ended is closed
	all     sync.WaitGroup
	stop    chan struct{}
}

// NewTTY makes a terminal without a wire.
func NewTTY(o Options) *TTY {
	t := &TTY{o: o, answers: make(chan []byte, 64), more: make(chan struct{}, 1), looker: looker{limit: o.Limit}}
	t.screen = New(o.Rows, o.Columns, t.answer)
	return t
}

// answer passes the terminal's answers on to a program. If a program asks
// faster than it reads, answers are dropped; the terminal never waits.
func (t *TTY) answer(b []byte) {
	select {
	case t.answers <- b:
	default:
	}
}

// Attach begins to read from w. It ends with Detach, after reads of w fail.
func (t *TTY) Attach(w io.ReadWriter) {
	t.wire, t.ended, t.stop = w, make(chan struct{}), make(chan struct{})
	t.all.Go(t.read)
	t.all.Go(t.show)
	t.all.Go(t.reply)
}

// Detach waits until no read or write of the wire is in progress. The caller
// must have made them fail before.
func (t *TTY) Detach() {
	if t.stop == nil {
		return
	}
	close(t.stop)
	t.all.Wait()
	t.stop = nil
}

func (t *TTY) read() {
	defer close(t.ended)
	b := make([]byte, readSize)
	for {
		n, err := t.wire.Read(b)
		if n > 0 {
			t.o.Cast.Output(b[:n])
			t.backlog.add(b[:n])
			select {
			case t.more <- struct{}{}:
			default:
			}
		}
		if err != nil {
			t.err = err
			return
		}
	}
}

func (t *TTY) show() {
	for ended := false; !ended; {
		select {
		case <-t.more:
		case <-t.ended:
			ended = true
		}
		for part, lines, missing := t.backlog.take(); part != nil; part, lines, missing = t.backlog.take() {
			t.mu.Lock()
			t.looker.past.skip(lines, missing)
			_, _ = t.screen.Write(part) // it never fails
			for _, line := range t.screen.Scrolled() {
				t.looker.past.add(line)
			}
			t.mu.Unlock()
		}
	}
}

func (t *TTY) reply() {
	for {
		select {
		case b := <-t.answers:
			if _, err := t.wire.Write(b); err != nil {
				return // the reader gets the reason
			}
		case <-t.stop:
			return
		}
	}
}

// Type types keystrokes; see Keys.
func (t *TTY) Type(text string) error {
	t.mu.Lock()
	b := Keys(text, t.screen.Modes())
	t.mu.Unlock()
	if len(b) == 0 {
		return nil
	}
	t.o.Cast.Input(b)
	_, err := t.wire.Write(b)
	return err
}

// Wait waits for d, and then until the output read so far is shown. It returns
// an error when ctx ends, and returns early when the terminal ends.
func (t *TTY) Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	late := time.Now().Add(settle)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !t.backlog.shown() && time.Now().Before(late) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Ended reports whether the terminal's program has ended. An error means that
// the terminal was lost.
func (t *TTY) Ended() (bool, error) {
	select {
	case <-t.ended:
		if errors.Is(t.err, io.EOF) {
			return true, nil
		}
		return true, t.err
	default:
		return false, nil
	}
}

// Look returns the output since the last look.
func (t *TTY) Look() View {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.looker.look(t.screen.Lines(), t.screen.Modes().Alternate)
}

// Screen returns the visible screen, including what earlier looks have shown.
func (t *TTY) Screen() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return limited(t.screen.Lines(), nil, 0, 0, t.o.Limit).Text
}

// Clear starts with an empty screen, for a new program. The terminal must be
// detached.
func (t *TTY) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.screen.Close()
	t.screen = New(t.o.Rows, t.o.Columns, t.answer)
	t.looker = looker{limit: t.o.Limit}
}

// Close ends the screen and its recording. The terminal must be detached.
func (t *TTY) Close() error {
	t.screen.Close()
	return t.o.Cast.Close()
}
