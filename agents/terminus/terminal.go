package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-eval/berth/agents/terminus/internal/protocol"
	"github.com/berth-eval/berth/agents/terminus/internal/screen"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// opener is what a terminal needs of a shell.
type opener interface {
	Terminal(ctx context.Context, spec sandbox.TerminalSpec) (*sandbox.Terminal, error)
	JoinTerminal(ctx context.Context, id string, offset int64) (*sandbox.Terminal, error)
}

// terminal is the shell that the agent types into. It is kept from turn to
// turn, and begun anew when it has ended.
type terminal struct {
	box   opener
	tty   *screen.TTY
	cast  *screen.Cast
	spec  sandbox.TerminalSpec
	shell []string // nil: the first of shells that is there

	begun  int // how many there were
	offset int64
	held   *sandbox.Terminal
	cancel context.CancelFunc
}

// shells are tried in this order.
var shells = [][]string{{"bash"}, {"sh"}}

// attach takes hold of the terminal, or begins one.
func (t *terminal) attach(ctx context.Context) error {
	ctx, t.cancel = context.WithCancel(ctx)
	if t.begun > 0 {
		held, err := t.box.JoinTerminal(ctx, t.spec.ID, t.offset)
		if err == nil {
			t.held = held
			t.tty.Attach(held)
			return nil
		}
		if !errors.Is(err, sandbox.ErrNotFound) {
			t.cancel()
			return fmt.Errorf("take up the terminal: %w", err)
		}
		t.tty.Clear()
	}
	return t.open(ctx)
}

// open begins a terminal. ctx is that of the hold.
func (t *terminal) open(ctx context.Context) error {
	choice := shells
	if len(t.shell) > 0 {
		choice = [][]string{t.shell}
	}
	t.begun++
	t.spec.ID = fmt.Sprintf("terminus-%d", t.begun)
	var err error
	for _, t.spec.Argv = range choice {
		if t.held, err = t.box.Terminal(ctx, t.spec); err == nil {
			t.offset = 0
			t.tty.Attach(t.held)
			return nil
		}
		if !errors.Is(err, sandbox.ErrNoProgram) {
			break
		}
	}
	t.cancel()
	return fmt.Errorf("begin a terminal: %w", err)
}

// detach lets go of the terminal, which runs on. What was recorded of it is in
// the file then.
func (t *terminal) detach() error {
	t.cancel()
	if t.held != nil {
		t.tty.Detach()
		t.offset, t.held = t.held.Offset(), nil
	}
	return t.cast.Flush()
}

// Waiting for a shell to show that it is there.
const (
	readyPause = 50 * time.Millisecond
	readyTries = 60
)

// ready waits until the shell has printed something and stopped, or for three
// seconds.
func (t *terminal) ready(ctx context.Context) error {
	last := ""
	for range readyTries {
		if err := t.tty.Wait(ctx, readyPause); err != nil {
			return err
		}
		now := t.tty.Screen()
		if now != "" && now == last {
			return nil
		}
		if _, err := t.tty.Ended(); err != nil {
			return err
		}
		last = now
	}
	return nil
}

// gap is how long there is between two commands at least: a shell that has got
// a line takes a moment before the terminal is the started program's.
const gap = 50 * time.Millisecond

// do types one command and waits. A note says what else the model should know.
func (t *terminal) do(ctx context.Context, c protocol.Command) (note string, err error) {
	typed := t.tty.Type(c.Keystrokes) // when it fails, the reader knows why
	if err = t.tty.Wait(ctx, max(c.Duration, gap)); err != nil {
		return "", err
	}
	ended, err := t.tty.Ended()
	switch {
	case err != nil:
		return "", fmt.Errorf("the terminal was lost: %w", err)
	case !ended:
		return "", typed
	}
	how := "its shell has ended"
	if result, ok := t.held.Result(); ok {
		how = fmt.Sprintf("its shell has ended with exit code %d", result.ExitCode)
		if result.Signal != 0 {
			how = fmt.Sprintf("its shell was ended by a signal (%s)", result.Signal)
		}
	}
	t.cancel()
	t.tty.Detach()
	t.held = nil
	last := t.tty.Screen()
	t.tty.Clear()
	ctx, t.cancel = context.WithCancel(ctx)
	if err = t.open(ctx); err != nil {
		return "", err
	}
	if err = t.ready(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, and a new terminal with a new shell was begun; before it stood on the screen:\n%s\n", how, last), nil
}
