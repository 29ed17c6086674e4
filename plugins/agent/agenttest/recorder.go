package agenttest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// record keeps what a session records.
type record struct {
	mu        sync.Mutex
	steps     []trajectory.Step
	lines     []string
	artifacts []string
}

func (r *record) Step(s trajectory.Step) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, s)
	return nil
}

func (r *record) Log(line string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
	return nil
}

func (r *record) Artifact(path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.artifacts = append(r.artifacts, path)
	return nil
}

// check asks s what it needs.
func (s *Subject) check(ctx context.Context) (agent.Needs, error) {
	infos := map[string]model.Info{}
	for name, e := range s.Models {
		infos[name] = model.Info{Dialect: e.Dialect, Name: e.Name}
	}
	return s.Agent.Check(ctx, agent.CheckRequest{Config: s.Config, Models: infos, Role: s.role()})
}

func (s *Subject) role() agent.Role {
	if s.Role == "" {
		return agent.RoleAgent
	}
	return s.Role
}

// unable returns why no session can be opened here; empty means that one can.
func unable(s Subject) string {
	ctx, cancel := context.WithTimeout(context.Background(), conformance.Patience(10*time.Second))
	defer cancel()
	needs, err := s.check(ctx)
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

// setup returns the input of Open, and a function that revokes the shell.
func (s *Subject) setup(ctx context.Context, t *conformance.T) (agent.Setup, func()) {
	view := t.TempDir()
	for name, text := range map[string]string{
		"task.json":      `{"name": "kit/plain", "stages": [{"name": "main"}]}`,
		"instruction.md": instruction,
	} {
		if err := os.WriteFile(filepath.Join(view, name), []byte(text), 0o644); err != nil {
			t.Fatalf("lay out a view: %v", err)
		}
	}
	out := agent.Setup{
		Session: "kit", Role: s.role(), View: view, Models: s.Models, Scratch: t.TempDir(), Config: s.Config,
		Workdir: workdir, Limits: agent.Limits{Time: time.Minute, MaxSteps: 20}, Reference: s.Reference,
	}
	revoke := func() {}
	if s.Shell != nil && s.role() != agent.RoleUser { // a user has no sandbox
		out.Shell, revoke = s.Shell(ctx, t)
		if s.Inside != nil && len(s.Models) > 0 {
			out.Models = s.Inside(ctx, t, out.Shell)
		}
	}
	if needs, err := s.check(ctx); err == nil && needs.Surface {
		shell := revoke
		address, surface := counted(ctx, t)
		out.Surface, revoke = address, func() { shell(); surface() }
	}
	return out, revoke
}

// open starts a session that is closed when the clause ends.
func (s *Subject) open(ctx context.Context, t *conformance.T) (session agent.Session, setup agent.Setup, revoke func()) {
	setup, revoke = s.setup(ctx, t)
	session, err := s.Agent.Open(ctx, setup)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return session, setup, revoke
}

// instruction is what the kit asks for. It is also a script of a shell, for
// agents that run what they are told: its first line is a comment there.
const instruction = "# Write the number 42 into the file answer.txt, with this command:\n\necho 42 > answer.txt\n"

// workdir is where commands start; answer is the file that is asked for.
const (
	workdir = "/app"
	answer  = "answer.txt"
)

var message = agent.Message{Stage: "main", Turn: 1, Text: instruction}
