package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/asciicast"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/system"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// castFile is the recording of the terminal, in the scratch folder.
const castFile = "terminal.cast"

// maxSeen is how much of the output of one line is kept in the trajectory, in
// bytes: its beginning. The recording has all.
const maxSeen = 16 << 10

// away is the key that leaves the shell for a moment: Ctrl-].
const away = 0x1d

// shell is what a session at a terminal has.
type shell struct {
	cast   *asciicast.Cast
	opened int // terminals so far

	mu   sync.Mutex
	keys []byte // typed since the last step
	sent bool   // they end with Enter
	seen []byte // printed since then
	left int    // bytes of it that are not kept
}

// begin puts kept files into the sandbox and starts the recording.
func (s *session) begin(ctx context.Context) error {
	if s.c.Files != "" {
		if err := s.restore(ctx); err != nil {
			return fmt.Errorf("put the kept files %s into the sandbox: %w", s.c.Files, err)
		}
	}
	if s.setup.Scratch == "" {
		return nil
	}
	t, err := open(s.c.Terminal)
	if err != nil {
		return err
	}
	rows, columns := t.size()
	t.close()
	s.cast, err = asciicast.New(filepath.Join(s.setup.Scratch, castFile), s.setup.Session, rows, columns, time.Now())
	return err
}

func (s *session) restore(ctx context.Context) error {
	f, err := os.Open(s.c.Files)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := zstd.NewReader(f, zstd.WithDecoderMaxMemory(256<<20), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	_, err = host.Restore(ctx, s.box, system.RestoreQuery{}, z)
	return err
}

// work lets the person work in a shell until it ends.
func (s *session) work(ctx context.Context, m agent.Message, r agent.Recorder) (y agent.Yield, err error) {
	t, err := open(s.c.Terminal)
	if err != nil {
		return y, err
	}
	defer t.close()
	if s.cast != nil && s.opened == 0 {
		if err = r.Artifact(castFile); err != nil {
			return y, err
		}
	}
	t.say(strings.TrimSpace(m.Text) + "\n\n" + rules("This terminal is in the sandbox of the task. Leave the shell with Ctrl-D when you are done. Ctrl-] leaves it for a moment.", m, &s.setup))
	for {
		why, err := s.connect(ctx, t, r)
		if flushed := s.step(r); err == nil {
			err = flushed
		}
		switch {
		case ctx.Err() != nil:
			t.say("The time is up.")
			return y, context.Cause(ctx)
		case errors.Is(err, errHungUp):
			return agent.Yield{End: agent.Crashed, Reason: errHungUp.Error()}, nil
		case err != nil:
			return y, err
		case s.spent():
			t.say("No step is left.")
			return agent.Yield{End: agent.MaxSteps, Reason: fmt.Sprintf("the limit of %d steps is reached", s.setup.Limits.MaxSteps)}, nil
		}
		if why == ended && !s.c.Words {
			return agent.Yield{End: agent.Done}, nil
		}
		question := "Your answer to the user (Enter for none): "
		if why == paused {
			question = "A message to the user, which ends your turn (Enter goes back to a new shell): "
		}
		words, err := t.ask(ctx, question)
		switch {
		case errors.Is(err, errHungUp):
			return agent.Yield{End: agent.Crashed, Reason: errHungUp.Error()}, nil
		case err != nil:
			return y, err
		case why == ended || words != "":
			t.say("Thank you.")
			return agent.Yield{End: agent.Done, Message: words}, nil
		}
	}
}

// longest is a time limit that is never reached: it is not mentioned.
const longest = 7 * 24 * time.Hour

// rules are what the person has to know.
func rules(text string, m agent.Message, setup *agent.Setup) string {
	limit := m.Time
	if limit == 0 {
		limit = setup.Limits.Time
	}
	if limit > 0 && limit < longest {
		text += fmt.Sprintf(" You have %s.", limit.Round(time.Second))
	}
	if setup.Limits.MaxSteps > 0 {
		text += fmt.Sprintf(" You may take %d steps.", setup.Limits.MaxSteps)
	}
	return "[" + text + "]"
}

// Why a connection to a shell ended.
const (
	ended  = "ended"  // the shell did
	paused = "paused" // the person pressed the key for it
)

// connect opens a shell on the person's terminal and passes on keys and output
// until one of both ends.
func (s *session) connect(ctx context.Context, t *tty, r agent.Recorder) (why string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := s.terminal(ctx, t)
	if err != nil {
		return "", err
	}
	if err = t.raw(); err != nil {
		return "", errors.Join(err, in.Close())
	}
	defer t.cooked()
	over := make(chan error, 1)
	go func() { over <- s.output(in, t) }() //nolint:contextcheck // a terminal has the context of its connection
	typed := make(chan error, 1)
	typing, stop := context.WithCancel(ctx)
	go func() { typed <- s.input(typing, in, t, r) }()
	resized := time.NewTicker(time.Second)
	defer resized.Stop()
	rows, columns := t.size()
	for why == "" && err == nil {
		select {
		case err = <-over:
			why = ended
		case err = <-typed:
			why = paused
			if errors.Is(err, sandbox.ErrGone) { // the shell ended while a key was pressed
				typed <- nil
				err, why = <-over, ended
			}
		case <-resized.C:
			if y, x := t.size(); y != rows || x != columns {
				rows, columns = y, x
				_ = in.Resize(rows, columns) //nolint:contextcheck // the same
			}
		}
	}
	stop()
	if why == ended {
		<-typed //nolint:errcheck // it reads from the terminal, which is asked next
	}
	return why, errors.Join(err, s.cast.Flush(), in.Close())
}

// terminal opens a terminal in the sandbox, with the first shell that is there.
func (s *session) terminal(ctx context.Context, t *tty) (in *sandbox.Terminal, err error) {
	choice := [][]string{{"bash"}, {"sh"}}
	if len(s.c.Shell) > 0 {
		choice = [][]string{s.c.Shell}
	}
	rows, columns := t.size()
	s.opened++
	spec := sandbox.TerminalSpec{
		ID: fmt.Sprintf("human-%d", s.opened), Rows: rows, Columns: columns, Dir: s.setup.Workdir, User: s.setup.User,
	}
	for _, spec.Argv = range choice {
		if in, err = s.box.Terminal(ctx, spec); !errors.Is(err, sandbox.ErrNoProgram) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open a terminal in the sandbox: %w", err)
	}
	return in, nil
}

// output shows what the sandbox prints, until its program has ended.
func (s *session) output(in *sandbox.Terminal, t *tty) error {
	b := make([]byte, 32<<10)
	for {
		n, err := in.Read(b)
		if n > 0 {
			s.cast.Output(b[:n])
			s.mu.Lock()
			keep := min(n, maxSeen-len(s.seen))
			s.seen, s.left = append(s.seen, b[:keep]...), s.left+n-keep
			s.mu.Unlock()
			if writeErr := t.write(b[:n]); writeErr != nil {
				return writeErr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// input passes on keys until the person leaves the shell or ctx ends. Each line is
// a step.
func (s *session) input(ctx context.Context, in *sandbox.Terminal, t *tty, r agent.Recorder) error {
	b := make([]byte, 4<<10)
	for {
		n, err := t.read(ctx, b)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the caller knows why
		}
		if err != nil {
			return err
		}
		keys := b[:n]
		s.mu.Lock()
		next := s.sent
		s.mu.Unlock()
		if next {
			if err = s.step(r); err != nil || s.spent() {
				return err
			}
		}
		for i, k := range keys {
			if k == away {
				return nil
			}
			s.mu.Lock()
			s.keys, s.sent = append(s.keys, k), k == '\r' && i == len(keys)-1
			s.mu.Unlock()
		}
		s.cast.Input(keys)
		if _, err = in.Write(keys); err != nil { //nolint:contextcheck // the same
			return err
		}
	}
}

// step records what was typed and what came of it.
func (s *session) step(r agent.Recorder) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) == 0 {
		return nil
	}
	typed, err := json.Marshal(map[string]string{"keystrokes": string(s.keys)})
	if err != nil {
		return err
	}
	seen := strings.ReplaceAll(strings.ToValidUTF8(ansi.Strip(string(s.seen)), "\uFFFD"), "\r", "")
	if s.left > 0 {
		seen += fmt.Sprintf("\n[%d more bytes are in the recording]", s.left)
	}
	s.keys, s.sent, s.seen, s.left = nil, false, nil, 0
	s.steps++
	none, text, id := int64(0), trajectory.Text(seen), fmt.Sprint("line-", s.steps)
	return r.Step(trajectory.Step{
		Source: trajectory.Model, LLMCallCount: &none, Message: trajectory.Text(""),
		ToolCalls:   []trajectory.ToolCall{{ID: id, Name: "terminal", Arguments: typed}},
		Observation: &trajectory.Observation{Results: []trajectory.Result{{SourceCallID: id, Content: &text}}},
	})
}
