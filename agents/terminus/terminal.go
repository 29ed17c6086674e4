package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-eval/berth/agents/terminus/internal/protocol"
	"github.com/berth-eval/berth/agents/terminus/internal/screen"
	"github.com/berth-eval/berth/plugins/agent/asciicast"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// terminal is the shell that the agent types into. It is kept from turn to
// turn, and started again if it has ended.
type terminal struct {
	box  sandbox.Shell
	tty  *screen.TTY
	cast *asciicast.Cast
	spec sandbox.TerminalSpec

	begun  int // number of terminals so far
	offset int64
	held   *sandbox.Terminal
	cancel context.CancelFunc
}

// shells are tried in this order.
var shells = [][]string{{"bash"}, {"sh"}}

// attach connects to the terminal, or starts one.
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

// open starts a terminal. ctx lasts as long as the connection to it.
func (t *terminal) open(ctx context.Context) error {
	t.begun++
	t.spec.ID = fmt.Sprintf("terminus-%d", t.begun)
	var err error
	for _, t.spec.Argv = range shells {
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

// detach disconnects from the terminal, which keeps running. Its recording is
// then complete in the file.
func (t *terminal) detach() error {
	t.cancel()
	if t.held != nil {
		t.tty.Detach()
		t.offset, t.held = t.held.Offset(), nil
	}
	return t.cast.Flush()
}

// Timing of the wait until a shell is ready.
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

// gap is the shortest time between two commands. After a shell has got a line,
// it takes a moment until the started program has the terminal.
const gap = 50 * time.Millisecond

// do types one command and waits. note contains anything else that the model
// should know.
func (t *terminal) do(ctx context.Context, c protocol.Command) (note string, err error) {
	typed := t.tty.Type(c.Keystrokes) // if it fails, the reader has the reason
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
