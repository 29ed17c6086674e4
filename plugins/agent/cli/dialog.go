package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// Dialog speaks a protocol with a CLI that is started once per session and
// reads messages from standard input. The CLI keeps running between turns.
// Calls come one after another.
type Dialog interface {
	Events // End is called when the CLI exits before the turn is over
	// Begin sends the message in t.Run. t.Fresh says that the CLI has just been
	// started. The CLI's output arrives as lines until t.Yield is called.
	Begin(t *Talk)
	// Stop asks the CLI to end the turn because its steps are used up. The CLI
	// has stopTime to do so.
	Stop()
}

// stopTime is how long a CLI may take to end a turn after Stop.
const stopTime = 10 * time.Second

// Talk is one turn of a Dialog. Only the methods of the Dialog may call its
// methods.
type Talk struct {
	Run   *Run
	Fresh bool

	in    *pending
	over  func()
	done  bool
	yield agent.Yield
	err   error
}

// Send writes to the CLI's standard input. It does not wait.
func (t *Talk) Send(b []byte) { t.in.write(b) }

// Yield ends the turn. An error that wraps agent.ErrModel means that the model
// did not answer.
func (t *Talk) Yield(y agent.Yield, err error) {
	if t.done {
		return
	}
	t.done, t.yield, t.err = true, y, err
	t.over()
}

// pending buffers the standard input of a CLI. A write never blocks because the
// goroutine that reads the CLI's output writes it: if both sides waited for the
// other to read, they would wait forever.
type pending struct {
	mu     sync.Mutex
	moved  sync.Cond
	bytes  []byte
	closed bool
}

func newPending() *pending {
	p := &pending{}
	p.moved.L = &p.mu
	return p
}

func (p *pending) write(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes = append(p.bytes, b...)
	p.moved.Broadcast()
}

// Read implements io.Reader.
func (p *pending) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.bytes) == 0 {
		if p.closed {
			return 0, io.EOF
		}
		p.moved.Wait()
	}
	n := copy(b, p.bytes)
	if p.bytes = p.bytes[n:]; len(p.bytes) == 0 {
		p.bytes = nil
	}
	return n, nil
}

func (p *pending) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.moved.Broadcast()
}

// errYielded is why a turn of a dialog ended after which the CLI keeps running.
var errYielded = errors.New("the turn is over")

// program is the running CLI of a Dialog.
type program struct {
	id        string // of the command
	out, errs int64  // bytes of its outputs so far
	split     *lines
}

// counted counts the bytes that pass.
type counted struct {
	w io.Writer
	n *int64
}

// Write implements io.Writer.
func (c counted) Write(b []byte) (int, error) {
	*c.n += int64(len(b))
	return c.w.Write(b)
}

// converse runs one turn of a dialog.
func (s *session) converse(ctx context.Context, start Start, r *Run, rec agent.Recorder) (y agent.Yield, exit Exit, err error) {
	out, err := s.keep(rec, "stdout.jsonl")
	if err != nil {
		return y, exit, err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	errs, err := s.keep(rec, "stderr.txt")
	if err != nil {
		return y, exit, err
	}
	defer func() { err = errors.Join(err, errs.close()) }()
	if s.turns > 1 && s.program == nil {
		return agent.Yield{End: agent.Crashed, Reason: "the CLI exited in an earlier turn, which ended its session"}, exit, nil
	}
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	in := newPending()
	defer in.close()
	t := &Talk{Run: r, Fresh: s.program == nil, in: in, over: func() { cancel(errYielded) }}
	free, spent := s.bound(func() { cancel(errSteps) })
	defer free()
	if spent {
		return y, exit, errSteps
	}
	if t.Fresh {
		s.program = &program{id: "cli", split: &lines{each: s.dialog.Line}}
	}
	p := s.program
	s.dialog.Begin(t)
	stdout, stderr := counted{io.MultiWriter(p.split, out), &p.out}, counted{errs, &p.errs}
	if t.Fresh {
		exit.Result, err = s.shell.Exec(work, sandbox.Command{
			ID: p.id, Argv: append(slices.Clone(start.Argv), s.settings.Args...), Env: s.environ(start), Dir: s.setup.Workdir, User: s.setup.User,
			Stdin: in, Stdout: stdout, Stderr: stderr,
		})
	} else {
		exit.Result, err = s.shell.Join(work, sandbox.Joining{ID: p.id, Stdin: in, Stdout: stdout, Stderr: stderr, StdoutOffset: p.out, StderrOffset: p.errs})
	}
	exit.Output, exit.Errors = string(p.split.tail), errs.last()
	switch {
	case t.done && s.book.spent():
		return y, exit, errSteps
	case t.done:
		return t.yield, exit, t.err
	case ctx.Err() != nil:
		return y, exit, err
	case errors.Is(context.Cause(work), errSteps):
		s.program = nil
		if err = s.shell.Kill(ctx, p.id); err != nil && !errors.Is(err, sandbox.ErrNotFound) { // it may not have started
			return y, exit, err
		}
		return y, exit, errSteps
	}
	s.program = nil
	if err != nil {
		return y, exit, err
	}
	if p.split.end(); t.done { // the last line had no line break
		return t.yield, exit, t.err
	}
	y, err = s.dialog.End(exit)
	return y, exit, err
}

// bound asks the CLI to stop when its steps are used up, and calls kill if it
// does not stop in time. spent is true if no steps were left before the turn.
func (s *session) bound(kill func()) (end func(), spent bool) {
	s.book.most, s.book.whole = s.setup.Limits.MaxSteps, nil
	if s.book.spent() {
		return func() {}, true
	}
	var timer *time.Timer
	s.book.whole = func() {
		if timer == nil && s.book.spent() {
			timer = time.AfterFunc(cmp.Or(s.patience, stopTime), kill)
			s.dialog.Stop()
		}
	}
	return func() {
		s.book.whole = nil
		if timer != nil {
			timer.Stop()
		}
	}, false
}
