package agenttest

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// record keeps what a session records.
type record struct {
	mu        sync.Mutex
	steps     []trajectory.Step
	lines     []string
	artifacts []string
}

func (r *record) Step(s trajectory.Step) error { return add(r, &r.steps, s) }

func (r *record) Log(line string) error { return add(r, &r.lines, line) }

func (r *record) Artifact(path string) error { return add(r, &r.artifacts, path) }

func add[T any](r *record, to *[]T, what T) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	*to = append(*to, what)
	return nil
}

// infos are the models of s, as Check gets them.
func (s *Subject) infos() map[string]model.Info {
	out := map[string]model.Info{}
	for name, e := range s.Models {
		out[name] = model.Info{Dialect: e.Dialect, Name: e.Name}
	}
	return out
}

// Check asks the agent what it needs.
func (s *Subject) Check(ctx context.Context) (agent.Needs, error) {
	return s.Agent.Check(ctx, agent.CheckRequest{Config: s.Config, Models: s.infos(), Role: s.role()})
}

// needs is Check in a clause.
func (s *Subject) needs(t *conformance.T) agent.Needs {
	needs, err := s.Check(t.Context())
	t.Must("check", err)
	return needs
}

func (s *Subject) role() agent.Role { return cmp.Or(s.Role, agent.RoleAgent) }

// unable returns why no session can be opened here; empty means that one can.
func unable(s *Subject) string {
	ctx, cancel := context.WithTimeout(context.Background(), conformance.Patience(10*time.Second))
	defer cancel()
	needs, err := s.Check(ctx)
	switch {
	case err != nil:
		return "" // the clause reports the error
	case len(needs.Refusals) > 0:
		return "it refuses: " + needs.Refusals[0]
	case (needs.Shell || needs.Terminal) && s.Shell == nil:
		return "it needs a shell, and no sandbox can be made here: berth doctor says why"
	case len(needs.Dialects) > 0 && !speaks(needs.Dialects, s.Models):
		return "it needs a model and none is given"
	case s.role() == agent.RoleOracle && s.Reference == nil:
		return "it needs a reference solution and none is given"
	}
	return ""
}

func speaks(dialects []model.Dialect, models map[string]model.Endpoint) bool {
	for _, m := range models {
		if m.Dialect == model.DialectScript || slices.Contains(dialects, m.Dialect) {
			return true
		}
	}
	return false
}

// session is an open session, with what it recorded.
type session struct {
	agent.Session
	record

	t      *conformance.T
	setup  agent.Setup
	revoke func() // takes its shell and its surface away
}

// open starts a session. change, if not nil, changes what it gets.
func (s *Subject) open(t *conformance.T, change func(*agent.Setup)) *session {
	view := t.TempDir()
	t.Write(view, map[string]string{"task.json": `{"name": "kit/plain", "stages": [{"name": "main"}]}`, "instruction.md": instruction})
	o := &session{t: t, revoke: func() {}, setup: agent.Setup{
		Session: "kit", Role: s.role(), View: view, Models: s.Models, Scratch: t.TempDir(), Config: s.Config,
		Workdir: workdir, Limits: agent.Limits{Time: time.Minute, MaxSteps: 20}, Reference: s.Reference,
	}}
	if s.Shell != nil && s.role() != agent.RoleUser { // a user has no sandbox
		o.setup.Shell, o.revoke = s.Shell(t)
		if s.Inside != nil && len(s.Models) > 0 {
			o.setup.Models = s.Inside(t, o.setup.Shell)
		}
	}
	if s.needs(t).Surface {
		shell := o.revoke
		address, surface := counted(t)
		o.setup.Surface, o.revoke = address, func() { shell(); surface() }
	}
	if change != nil {
		change(&o.setup)
	}
	var err error
	o.Session, err = s.Agent.Open(t.Context(), o.setup)
	t.Must("open", err)
	return o
}

// turn sends the message of the kit.
func (o *session) turn(ctx context.Context, number int) (agent.Yield, error) {
	return o.Turn(ctx, agent.Message{Stage: "main", Turn: number, Text: instruction}, o)
}

// whole makes one turn, which must not fail, and closes the session.
func (o *session) whole() agent.Yield {
	y, err := o.turn(o.t.Context(), 1)
	o.t.Must("turn", err)
	o.close()
	return y
}

// cut makes a turn and cuts it off after a moment, after calling before. It wants the
// turn to end soon.
func (o *session) cut(before func()) {
	turn, cancel := context.WithCancel(o.t.Context())
	defer cancel()
	time.AfterFunc(conformance.Delay(30*time.Millisecond), func() { before(); cancel() })
	o.t.Ends("turn", patience, func() { _, _ = o.turn(turn, 1) })
}

func (o *session) close() { o.t.Check("close", o.Close(o.t.Context(), "", o)) }

// shell is a client of the session's sandbox.
func (o *session) shell() *sandbox.Client {
	shell, err := sandbox.Dial(o.setup.Shell)
	o.t.Must("look into the sandbox", err)
	o.t.Cleanup(func(context.Context) { _ = shell.Close() })
	return shell
}

// written wants the number in the file that the message asks for.
func (o *session) written() {
	file := path.Join(workdir, answer)
	got, err := o.shell().ReadFile(o.t.Context(), file, 1<<10)
	if err == nil && strings.TrimSpace(string(got)) == "42" {
		return
	}
	how := "The message asks for it, and is a shell script as well"
	if len(o.setup.Models) > 0 {
		how += "; the model of the kit calls a tool that takes a command, or, where no tool is offered, answers with the command"
	}
	o.t.Errorf("after the turn %s holds %q (%v); want 42. %s", file, got, err, how)
}

// instruction is what the kit asks for. It is also a script of a shell, for
// agents that run what they are told: its first line is a comment there.
const instruction = "# Write the number 42 into the file answer.txt, with this command:\n\necho 42 > answer.txt\n"

// workdir is where commands start; answer is the file that is asked for.
const (
	workdir = "/app"
	answer  = "answer.txt"
)
