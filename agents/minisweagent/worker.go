package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/loop"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// done is the first output line of a command that reports the task as complete.
// The rest is the agent's final message.
const done = "TASK_IS_COMPLETE"

// maxBad is how many replies in a row may be unusable before the agent gives
// up.
const maxBad = 10

const system = `You carry out a task in a Linux sandbox by running shell commands. Questions are not answered; decide for yourself.

Each reply holds a short thought and then exactly one command, in a code block like this:

` + "```bash\nls -la && cat notes.txt\n```" + `

The command runs in a new shell in the same folder each time: cd, variables and functions are gone with the next command, so put what belongs together into one, with && or a here-document. It has no terminal: programs that wait for keys do not work. You are shown its exit code and its output.

When the task is done, and you have checked that it is, reply with this command alone:

` + "```bash\necho " + done + "\n```"

// worker is one session.
type worker struct {
	s     *loop.Session[Config]
	c     *Config
	box   execer
	talk  []chat.Message
	shell string // path of the shell in the sandbox; empty: not known yet
	turns int64
}

// execer is what the worker needs from the sandbox.
type execer interface {
	Exec(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
}

// Close implements loop.Worker.
func (w *worker) Close(context.Context, *loop.Recorder) error { return nil }

// Turn implements loop.Worker.
func (w *worker) Turn(ctx context.Context, m agent.Message, r *loop.Recorder) (agent.Yield, error) {
	if err := w.begin(ctx, m); err != nil {
		return agent.Yield{}, err
	}
	for bad := 0; ; {
		reply, err := r.Ask(ctx, w.s.Model, chat.Request{
			System: system, Messages: w.talk, Effort: w.c.ReasoningEffort, MaxTokens: w.c.MaxTokens, Temperature: w.c.Temperature,
		})
		if errors.Is(err, chat.ErrTooLong) {
			return agent.Yield{End: agent.Crashed, Reason: err.Error()}, nil
		}
		if err != nil {
			return agent.Yield{}, err
		}
		w.turns++
		w.talk = append(w.talk, chat.Message{Role: chat.Assistant, Text: reply.Text})
		step := r.Of(reply, reply.Text)
		if reply.Stop == chat.Refused {
			return agent.Yield{End: agent.Refused, Message: reply.Text, Reason: "the model refused"}, r.Step(step)
		}
		command, wrong := parse(reply)
		if wrong != nil {
			if bad++; bad == maxBad {
				return agent.Yield{End: agent.Crashed, Reason: fmt.Sprintf("%d replies in a row could not be used; of the last: %s", bad, wrong)}, r.Step(step)
			}
			text := fmt.Sprintf("Nothing was run: %s. Reply with a short thought and exactly one ```bash code block.", wrong)
			loop.Observe(&step, "", text)
			w.talk = loop.Say(w.talk, text, nil)
			if err = r.Step(step); err != nil {
				return agent.Yield{}, err
			}
			continue
		}
		bad = 0
		last, finished, err := w.act(ctx, r, step, command)
		if err != nil {
			return agent.Yield{}, err
		}
		if finished {
			return agent.Yield{End: agent.Done, Message: last, Reason: "the model said that the task is complete"}, nil
		}
	}
}

// begin adds the message to the conversation.
func (w *worker) begin(ctx context.Context, m agent.Message) error {
	images, err := loop.Images(w.s.Setup.View, m.Files)
	if err != nil {
		return err
	}
	const maxPrior = 20000 // bytes
	prior, err := loop.Prior(w.s.Setup.Prior, maxPrior)
	if err != nil {
		return err
	}
	text := m.Text
	if len(w.talk) == 0 {
		offers, err := loop.Skills(ctx, w.s.Shell, w.s.Setup.Skills)
		if err != nil {
			return err
		}
		text = "The task:\n\n" + m.Text
		if offers != "" {
			text += "\n" + offers
		}
		if prior != "" {
			text += "\n\nAnother agent has worked on this before you. What was done, in short:\n\n" + prior
		}
	}
	w.talk = loop.Say(w.talk, text, images)
	return nil
}

// act runs a command and records the step.
func (w *worker) act(ctx context.Context, r *loop.Recorder, step trajectory.Step, command string) (last string, finished bool, err error) {
	id := fmt.Sprintf("call_%d", w.turns)
	if err = loop.Call(&step, id, "bash", map[string]string{"command": command}); err != nil {
		return "", false, err
	}
	said, last, finished, err := w.run(ctx, command)
	if err != nil {
		return "", false, errors.Join(err, r.Step(step)) // record the step that was started
	}
	loop.Observe(&step, id, said)
	if finished {
		loop.Final(&step)
	}
	w.talk = loop.Say(w.talk, said, nil)
	return last, finished, r.Step(step)
}

var block = regexp.MustCompile("(?ms)^[ \\t]*```(?:bash|sh|shell)[ \\t]*\\r?\\n(.*?)^[ \\t]*```[ \\t]*\\r?$")

// maxCommand is how long a command may be, in bytes: Linux takes 128 KiB in one
// argument.
const maxCommand = 120 << 10

// parse returns the command in a reply. Its error tells the model why there is
// none.
func parse(r chat.Reply) (string, error) {
	found := block.FindAllStringSubmatch(r.Text, -1)
	switch {
	case r.Stop == chat.Length:
		return "", errors.New("the reply was cut off, because it was too long")
	case len(found) == 0:
		return "", errors.New("there is no ```bash code block in the reply")
	case len(found) > 1:
		return "", fmt.Errorf("there are %d ```bash code blocks in the reply", len(found))
	case strings.TrimSpace(found[0][1]) == "":
		return "", errors.New("the code block is empty")
	case strings.ContainsRune(found[0][1], 0):
		return "", errors.New("the command holds a zero byte, which no command can: write it as an escape, such as \\0")
	case len(found[0][1]) > maxCommand:
		return "", fmt.Errorf("the command has %d bytes, and at most %d can be run: write a large file in pieces", len(found[0][1]), maxCommand)
	}
	return strings.TrimRight(found[0][1], "\r\n"), nil
}

// quiet keeps programs from waiting for a person.
var quiet = []string{"PAGER=cat", "GIT_PAGER=cat", "MANPAGER=cat", "TERM=dumb", "DEBIAN_FRONTEND=noninteractive", "GIT_TERMINAL_PROMPT=0"}

// run runs one command in its own shell. said is the text for the model; last
// is the final message of a command that reports the task as complete.
func (w *worker) run(ctx context.Context, command string) (said, last string, finished bool, err error) {
	var text bytes.Buffer
	out := output.New(closer{&text}, outputBytes/2, outputBytes/2)
	var result sandbox.Result
	shells := []string{"bash", "sh"}
	if w.shell != "" {
		shells = []string{w.shell}
	}
	for _, w.shell = range shells {
		result, err = w.box.Exec(ctx, sandbox.Command{
			Argv: []string{w.shell, "-c", command}, Env: quiet, Dir: w.s.Setup.Workdir, User: w.s.Setup.User,
			Timeout: w.c.CommandTimeout, Stdout: out, Stderr: out,
		})
		if !errors.Is(err, sandbox.ErrNoProgram) {
			break
		}
	}
	if bad := out.Close(); err == nil && bad != nil {
		err = bad
	}
	if err != nil {
		return "", "", false, fmt.Errorf("run a command: %w", err)
	}
	shown := strings.ToValidUTF8(text.String(), "\uFFFD")
	switch {
	case result.TimedOut:
		said = fmt.Sprintf("It was killed, because it took longer than %s. Run what takes longer in the background, with its output in a file.\n", w.c.CommandTimeout)
	case result.Signal != 0:
		said = fmt.Sprintf("It was ended by a signal: %s.\n", result.Signal)
	default:
		said = fmt.Sprintf("Exit code: %d\n", result.ExitCode)
	}
	first, rest, _ := strings.Cut(strings.TrimLeft(shown, "\n"), "\n")
	return said + "Output:\n" + shown, strings.TrimSpace(rest), result.OK() && strings.TrimSpace(first) == done, nil
}

// closer is a buffer as a file.
type closer struct{ *bytes.Buffer }

// Close implements io.Closer.
func (closer) Close() error { return nil }
