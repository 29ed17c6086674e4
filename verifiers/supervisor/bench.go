package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Bounds of a command of the supervisor's model.
const (
	maxCommand = 120 * time.Second
	maxShown   = 32 << 10 // bytes of its output that the model gets: the first and the last half
	maxPrinted = 64 << 20 // bytes of output after which it is ended
)

// runTool is the tool that a supervisor with a sandbox has in addition.
var runTool = chat.Tool{
	Name: "run",
	Description: fmt.Sprintf("Runs a command with sh -c in your sandbox, in the folder %s. It is ended after %d seconds, and what it leaves running ends with it. "+
		"You get its exit code and at most %d KiB of its output.", verifier.ViewFolder, int(maxCommand.Seconds()), maxShown>>10),
	Parameters: json.RawMessage(`{"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"], "additionalProperties": false}`),
}

// bench is the supervisor's own sandbox in one judgement. It does nothing until the
// first command. Not safe for concurrent use.
type bench struct {
	request *verifier.Request
	box     *sandbox.Client // nil before the first command
	limit   time.Duration   // of a command, in tests; 0: maxCommand
}

func (b *bench) close() {
	if b.box != nil {
		_ = b.box.Close()
	}
}

// do carries out a call of runTool. What cannot be done is told to the model. An
// error means that the sandbox does not work any more, or that ctx ended.
func (b *bench) do(ctx context.Context, c chat.Call) (res chat.Result, err error) {
	res.CallID = c.ID
	var a struct{ Command string }
	if err = json.Unmarshal(c.Arguments, &a); err != nil {
		err = fmt.Errorf("the arguments are not as the tool describes them: %w", err)
	} else if strings.TrimSpace(a.Command) == "" || strings.Contains(a.Command, "\x00") {
		err = errors.New("give a command")
	}
	if err == nil {
		if err = b.open(ctx); err == nil {
			res.Text, err = b.run(ctx, a.Command)
		}
		if err != nil && (ctx.Err() != nil || !tellable(err)) {
			return res, fmt.Errorf("the supervisor's own sandbox: %w", err)
		}
	}
	if err != nil { // the model does not learn where the view is on this machine
		res.Text, res.Failed = strings.ReplaceAll(err.Error(), b.request.View, verifier.ViewFolder), true
	}
	return res, nil
}

// tellable reports whether an error of the sandbox says something about a command
// or the files, so that the model can do something else.
func tellable(err error) bool {
	return slices.ContainsFunc([]error{
		sandbox.ErrNoProgram, sandbox.ErrNotFound, sandbox.ErrDenied, sandbox.ErrNoRoom, sandbox.ErrTooLarge, sandbox.ErrUnsafe, sandbox.ErrInvalid, sandbox.ErrExists,
	}, func(known error) bool { return errors.Is(err, known) })
}

// open connects to the sandbox and places the view of this judgement, once.
func (b *bench) open(ctx context.Context) error {
	if b.box != nil {
		return nil
	}
	if b.request.Shell == "" {
		return errors.New("there is none, although the configuration asks for it")
	}
	box, err := sandbox.Dial(b.request.Shell)
	if err != nil {
		return err
	}
	if err = b.request.PlaceView(ctx, box); err != nil {
		return errors.Join(err, box.Close())
	}
	b.box = box
	return nil
}

// run runs a command and says how it ended. The variables of the task's own
// verification are not for the model: they may hold keys.
func (b *bench) run(ctx context.Context, command string) (string, error) {
	limit := b.limit
	if limit == 0 {
		limit = maxCommand
	}
	var empty []string
	for name := range b.request.Env {
		if name != "PATH" && name != "HOME" {
			empty = append(empty, name+"=")
		}
	}
	var text bytes.Buffer
	out := &printed{File: output.New(memory{&text}, maxShown/2, maxShown/2), left: maxPrinted}
	r, err := b.box.Exec(ctx, sandbox.Command{
		Argv: []string{"sh", "-c", command}, Env: empty, Dir: verifier.ViewFolder, User: b.request.User, Timeout: limit, Stdout: out, Stderr: out, Sweep: true,
	})
	_ = out.Close() // a buffer
	said := ""
	switch {
	case errors.Is(err, errPrinted):
		said = fmt.Sprintf("It was ended, because it printed more than %d MiB.", maxPrinted>>20)
	case err != nil:
		return "", err
	case r.TimedOut:
		said = fmt.Sprintf("It was ended after %s.", limit)
	case r.Signal != 0:
		said = fmt.Sprintf("It was ended by a signal: %s.", r.Signal)
	default:
		said = fmt.Sprintf("Exit code %d.", r.ExitCode)
	}
	return said + " Output:\n" + strings.ToValidUTF8(text.String(), "\uFFFD"), nil
}

// errPrinted means that a command printed too much.
var errPrinted = errors.New("too much output")

// printed keeps the beginning and the end of an output, and fails when it is too
// long.
type printed struct {
	*output.File
	left int
}

func (p *printed) Write(b []byte) (int, error) {
	if p.left -= len(b); p.left < 0 {
		return 0, errPrinted
	}
	return p.File.Write(b)
}

// memory is a buffer as a file.
type memory struct{ io.Writer }

// Close implements io.Closer.
func (memory) Close() error { return nil }
