package agenttest

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// patience is how long an agent may take to notice that its turn is over, on an
// idle machine.
const patience = 5 * time.Second

// needsClauses are about Check.
var needsClauses = []conformance.Clause[Subject]{
	{
		Name:   "check gives the same answer twice",
		Guards: "a plan that asks for one thing and a run that gets another",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			first, err1 := s.check(ctx)
			second, err2 := s.check(ctx)
			if err1 != nil || err2 != nil || !reflect.DeepEqual(first, second) {
				t.Errorf("first %+v, %v; then %+v, %v", first, err1, second, err2)
			}
		},
	},
	{
		Name:   "the answer of check is well-formed",
		Guards: "a bundle at a relative path, or a dialect that no gateway speaks",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			needs, err := s.check(ctx)
			if err != nil {
				t.Fatalf("check: %v", err)
			}
			for _, d := range needs.Dialects {
				switch d {
				case model.DialectAnthropic, model.DialectOpenAI, model.DialectOpenAIChat, model.DialectGemini:
				default:
					t.Errorf("speaks dialect %q, which no gateway offers", d)
				}
			}
			for _, b := range needs.Bundles {
				if !filepath.IsAbs(b.Source) || !path.IsAbs(b.Target) {
					t.Errorf("bundle %+v: both paths must be absolute", b)
				}
			}
			for _, l := range needs.Logs {
				if !path.IsAbs(l) {
					t.Errorf("log path %q is not absolute", l)
				}
			}
		},
	},
	{
		Name:   "a configuration with an unknown key is refused",
		Guards: "a misspelt option that silently does nothing in a whole run",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			const key = "an_option_that_no_agent_has"
			needs, err := s.Agent.Check(ctx, agent.CheckRequest{Config: json.RawMessage(`{"` + key + `": true}`), Role: s.role()})
			said := strings.Join(needs.Refusals, "\n")
			if err != nil {
				said += err.Error()
			}
			if !strings.Contains(said, key) {
				t.Errorf("check said %q; want an error or a refusal that names %s", said, key)
			}
		},
	},
	{
		Name:   "a configuration that is not JSON is an error",
		Guards: "a plugin that ends, and with it every other attempt",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			_, err := s.Agent.Check(ctx, agent.CheckRequest{Config: json.RawMessage(`{"a": [`), Role: s.role()})
			if err == nil {
				t.Errorf("check accepted a configuration that is cut short")
			}
			if _, err := s.check(ctx); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		},
	},
}

// sessionClauses are about sessions and turns.
var sessionClauses = []conformance.Clause[Subject]{
	{
		Name:   "a turn does what was asked, and ends with done",
		Guards: "an agent that answers each call correctly, and never does any work",
		Time:   30 * time.Second,
		Proof:  true,
		Skip:   unable,
		Run:    works,
	},
	{
		Name:   "a session without a turn can be closed",
		Guards: "an attempt that fails between open and the first turn",
		Skip:   unable,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			session, _, _ := s.open(ctx, t)
			if err := session.Close(ctx, "", &record{}); err != nil {
				t.Errorf("close: %v", err)
			}
		},
	},
	{
		Name:   "a turn ends with a yield",
		Guards: "an end that is not one of the known ones, and so cannot be counted",
		Skip:   unable,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			session, _, _ := s.open(ctx, t)
			y, err := session.Turn(ctx, message, &record{})
			if err != nil {
				t.Fatalf("turn: %v", err)
			}
			switch y.End {
			case agent.Done, agent.Asked, agent.MaxSteps, agent.Refused, agent.Crashed:
			default:
				t.Errorf("yield %+v: end is none of done, asked, max_steps, refused, crashed", y)
			}
			if err := session.Close(ctx, "", &record{}); err != nil {
				t.Errorf("close: %v", err)
			}
		},
	},
	{
		Name:   "steps are steps of a valid trajectory",
		Guards: "a trajectory.json that no reader of the format accepts",
		Skip:   unable,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			session, _, _ := s.open(ctx, t)
			r := &record{}
			if _, err := session.Turn(ctx, message, r); err != nil {
				t.Fatalf("turn: %v", err)
			}
			if err := session.Close(ctx, "", r); err != nil {
				t.Errorf("close: %v", err)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			whole := trajectory.Trajectory{Agent: trajectory.Agent{Name: "kit", Version: "1"}, Steps: r.steps}
			for i := range whole.Steps {
				whole.Steps[i].StepID = int64(i + 1)
			}
			data, err := json.Marshal(whole)
			if err != nil {
				t.Fatalf("steps: %v", err)
			}
			if len(whole.Steps) == 0 {
				return // an agent that does nothing records no trajectory
			}
			for _, v := range trajectory.Validate(data) {
				t.Errorf("%s", v)
			}
		},
	},
	{
		Name:   "artifacts are files of the scratch folder",
		Guards: "an artifact that names a file of the host",
		Skip:   unable,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			session, setup, _ := s.open(ctx, t)
			r := &record{}
			_, _ = session.Turn(ctx, message, r)
			_ = session.Close(ctx, "", r)
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, a := range r.artifacts {
				if !filepath.IsLocal(a) {
					t.Errorf("artifact %q leaves the scratch folder", a)
				} else if _, err := os.Lstat(filepath.Join(setup.Scratch, a)); err != nil {
					t.Errorf("artifact %q: %v", a, err)
				}
			}
		},
	},
	{
		Name:   "a second message continues the session",
		Guards: "a simulated user whose answer starts everything anew, or is refused",
		Skip:   unable,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			session, setup, _ := s.open(ctx, t)
			needs, err := s.check(ctx)
			// The kit's model does not say the same twice in a conversation.
			works := err == nil && (needs.Shell || needs.Terminal) && setup.Shell != "" && len(setup.Models) == 0 && s.role() == agent.RoleAgent
			for turn := 1; turn <= 2; turn++ {
				if turn == 2 && works {
					forget(ctx, t, setup)
				}
				m := message
				m.Turn = turn
				if _, err := session.Turn(ctx, m, &record{}); err != nil {
					t.Errorf("turn %d: %v", turn, err)
				}
			}
			if works {
				written(ctx, t, setup)
			}
			_ = session.Close(ctx, "", &record{})
		},
	},
	{
		Name:   "a message of 200 KiB is accepted",
		Guards: "a long instruction that dies on the limit of an argument list",
		Skip:   unable,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			session, _, _ := s.open(ctx, t)
			m := message
			m.Text = strings.Repeat(instruction+"# \u00e4\u20ac\n", 2500)
			if _, err := session.Turn(ctx, m, &record{}); err != nil {
				t.Errorf("turn: %v", err)
			}
			_ = session.Close(ctx, "", &record{})
		},
	},
	{
		Name:   "a turn that is cut off ends soon",
		Guards: "an agent that works on after its deadline, while it is graded",
		Time:   25 * time.Second,
		Skip:   unable,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			session, _, revoke := s.open(ctx, t)
			var before conformance.Load
			if s.Load != nil {
				before = s.Load()
			}
			turn, cancel := context.WithCancel(ctx)
			time.AfterFunc(conformance.Delay(30*time.Millisecond), func() { revoke(); cancel() })
			defer cancel()
			soon(t, "turn", func() { _, _ = session.Turn(turn, message, &record{}) })
			soon(t, "close", func() { _ = session.Close(ctx, "", &record{}) })
			t.Calms(ctx, s.Load, before, patience)
		},
	},
	{
		Name:   "a message after a turn that was cut off is accepted",
		Guards: "a user who speaks after a timeout, and an agent that cannot continue",
		Time:   25 * time.Second,
		Skip: func(s Subject) string {
			if why := unable(s); why != "" {
				return why
			}
			ctx, cancel := context.WithTimeout(context.Background(), conformance.Patience(10*time.Second))
			defer cancel()
			if needs, err := s.check(ctx); err == nil && !needs.KeepsSession {
				return "it does not say that it keeps its session"
			}
			return ""
		},
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			session, _, _ := s.open(ctx, t)
			turn, cancel := context.WithCancel(ctx)
			time.AfterFunc(conformance.Delay(30*time.Millisecond), cancel)
			defer cancel()
			soon(t, "turn", func() { _, _ = session.Turn(turn, message, &record{}) })
			m := message
			m.Turn = 2
			if y, err := session.Turn(ctx, m, &record{}); err != nil || y.End == agent.Crashed {
				t.Errorf("the turn after one that was cut off: %+v, %v", y, err)
			}
			_ = session.Close(ctx, "", &record{})
		},
	},
	{
		Name:   "a shell that refuses ends the turn",
		Guards: "an agent that waits forever for a sandbox that was lost",
		Time:   15 * time.Second,
		Skip: func(s Subject) string {
			if s.Shell == nil {
				return "no sandbox can be made here: berth doctor says why"
			}
			return unable(s)
		},
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			needs, err := s.check(ctx)
			if err != nil || !needs.Shell && !needs.Terminal {
				return // it has no shell that could be lost
			}
			session, _, revoke := s.open(ctx, t)
			revoke()
			soon(t, "turn", func() {
				y, err := session.Turn(ctx, message, &record{})
				if err == nil && y.End == agent.Done {
					t.Errorf("got %+v without a shell; want an error, or a yield that is not done", y)
				}
			})
			_ = session.Close(ctx, "", &record{})
		},
	},
	{
		Name:   "the view is not changed",
		Guards: "an agent that changes what its verifier or its next turn reads",
		Skip:   unable,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			session, setup, _ := s.open(ctx, t)
			before := names(t, setup.View)
			_, _ = session.Turn(ctx, message, &record{})
			_ = session.Close(ctx, "", &record{})
			if after := names(t, setup.View); after != before {
				t.Errorf("before:\n%safter:\n%s", before, after)
			}
		},
	},
	{
		Name:   "logs of a killed program are read without harm",
		Guards: "a link or a pipe among the collected logs that hangs the end of an attempt",
		Skip:   unable,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			logs := t.TempDir()
			_ = os.Symlink("/dev/zero", filepath.Join(logs, "session.jsonl"))
			_ = os.WriteFile(filepath.Join(logs, "torn.jsonl"), []byte("{\"type\": \"assist\xff\xfe"), 0o644)
			session, _, _ := s.open(ctx, t)
			_, _ = session.Turn(ctx, message, &record{})
			soon(t, "close", func() { _ = session.Close(ctx, logs, &record{}) })
		},
	},
	{
		Name:   "concurrent sessions do not mix",
		Guards: "steps of one attempt in the trajectory of another",
		Skip:   unable,
		Run:    eight,
	},
}

// works runs one turn and looks for the file that it asks for.
func works(ctx context.Context, t *conformance.T, s Subject) {
	needs, err := s.check(ctx)
	if err != nil {
		t.Fatalf("check: %v", err)
	}
	session, setup, _ := s.open(ctx, t)
	asked := s.asked()
	r := &record{}
	y, err := session.Turn(ctx, message, r)
	if err != nil {
		t.Fatalf("turn: %v", err)
	}
	if s.Asked != nil && len(needs.Dialects) > 0 && s.asked() == asked {
		t.Errorf("Check says that it needs a model, and it sent no request to it in the turn")
	}
	defer func() {
		for _, line := range r.lines {
			t.Logf("it logs: %s", line)
		}
	}()
	if y.End != agent.Done {
		t.Errorf("the turn ended with %+v; want done", y)
	}
	if needs.Shell || needs.Terminal { // without, it can write no file
		written(ctx, t, setup)
	}
	if s.role() == agent.RoleUser && y.Message == "" {
		t.Errorf("the user said nothing to %q", message.Text)
	}
	if err := session.Close(ctx, "", r); err != nil {
		t.Errorf("close: %v", err)
	}
}

// asked is how many requests the models have got so far; 0 if that is not known.
func (s *Subject) asked() int64 {
	if s.Asked == nil {
		return 0
	}
	return s.Asked()
}

// written wants the number in the file that the message asks for.
func written(ctx context.Context, t *conformance.T, setup agent.Setup) {
	shell, err := sandbox.Dial(setup.Shell)
	if err != nil {
		t.Fatalf("look for %s: %v", answer, err)
	}
	defer func() { _ = shell.Close() }()
	got, err := shell.ReadFile(ctx, path.Join(workdir, answer), 1<<10)
	if err == nil && strings.TrimSpace(string(got)) == "42" {
		return
	}
	how := "The message asks for it, and is a shell script as well"
	if len(setup.Models) > 0 {
		how += "; the model of the kit calls a tool that takes a command, or, where no tool is offered, answers with the command"
	}
	t.Errorf("after the turn %s holds %q (%v); want 42. %s", path.Join(workdir, answer), got, err, how)
}

// forget removes the file that a message asks for.
func forget(ctx context.Context, t *conformance.T, setup agent.Setup) {
	shell, err := sandbox.Dial(setup.Shell)
	if err != nil {
		t.Fatalf("remove %s: %v", answer, err)
	}
	defer func() { _ = shell.Close() }()
	if _, err = shell.Exec(ctx, sandbox.Command{Argv: []string{"rm", "-f", path.Join(workdir, answer)}}); err != nil {
		t.Fatalf("remove %s: %v", answer, err)
	}
}

// eight runs eight sessions at once. Each must end like a session that runs
// alone and record as many steps.
func eight(ctx context.Context, t *conformance.T, s Subject) {
	alone := &record{}
	session, _, _ := s.open(ctx, t)
	want, err := session.Turn(ctx, message, alone)
	if err != nil {
		t.Fatalf("alone: %v", err)
	}
	_ = session.Close(ctx, "", alone)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			setup, _ := s.setup(ctx, t)
			session, err := s.Agent.Open(ctx, setup)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			r := &record{}
			got, err := session.Turn(ctx, message, r)
			if err != nil || got.End != want.End {
				t.Errorf("among others %+v, %v; alone %+v", got, err, want)
			}
			_ = session.Close(ctx, "", r)
			if len(s.Models) == 0 && len(r.steps) != len(alone.steps) {
				t.Errorf("among others %d steps, alone %d", len(r.steps), len(alone.steps))
			}
		})
	}
	all.Wait()
}

func soon(t *conformance.T, what string, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(conformance.Patience(patience)):
		t.Errorf("%s: still continuing after %v", what, patience)
	}
}

// names lists files with their sizes and modes.
func names(t *conformance.T, dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatalf("read %s: %v", dir, err)
	}
	var b strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatalf("read %s: %v", dir, err)
		}
		b.WriteString(info.Mode().String() + " " + info.ModTime().String() + " " + e.Name() + "\n")
	}
	return b.String()
}
