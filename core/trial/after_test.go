package trial_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/verifier"
)

// endsFirst is an agent whose first turn ends so, and which adds one in every
// turn.
func endsFirst(first func(ctx context.Context, a *actor) (agent.Yield, error)) *scripted {
	return &scripted{
		needs: agent.Needs{Shell: true, KeepsSession: true},
		turn: func(ctx context.Context, a *actor, m agent.Message) (agent.Yield, error) {
			if err := a.sh(ctx, "printf 1 >> /logs/artifacts/n"); err != nil {
				return agent.Yield{}, err
			}
			if m.Turn == 1 {
				return first(ctx, a)
			}
			return agent.Yield{End: agent.Done, Message: "did it"}, nil
		},
	}
}

// hangs leaves a command running that survives the end of its connection. Its
// argument is unique to the attempt.
func hangs(ctx context.Context, a *actor) (agent.Yield, error) {
	_, err := a.shell.Exec(ctx, sandbox.Command{ID: "left", Argv: []string{"sh", "-c", "sleep 7391; true", unique(a.setup.Scratch)}})
	return agent.Yield{}, err
}

// unique returns the name of an attempt's runtime folder, as part of a path in it.
func unique(path string) string {
	return "left-" + regexp.MustCompile(`/br[0-9]+`).FindString(path)
}

func yields(end agent.End) func(context.Context, *actor) (agent.Yield, error) {
	return func(context.Context, *actor) (agent.Yield, error) { return agent.Yield{End: end}, nil }
}

// alive reports whether a process of this machine has an argument.
func alive(t *testing.T, argument string) bool {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	testlevel.Must(t, err)
	return slices.ContainsFunc(all, func(file string) bool {
		b, err := os.ReadFile(file) // it may have ended
		return err == nil && slices.Contains(strings.Split(string(b), "\x00"), argument)
	})
}

// After a turn that was cut off, the work is judged once more, and nothing that the
// agent ran is alive then. The user speaks only if the task allows it, and the
// session takes the message.
func TestTheUserMaySpeakAfterACut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		first func(context.Context, *actor) (agent.Yield, error)
		after []string
		turns int
	}{
		{"timeout, by default", hangs, nil, 1},
		{"timeout", hangs, []string{"yielded", "timeout"}, 2},
		{"max_steps, by default", yields(agent.MaxSteps), nil, 1},
		{"max_steps", yields(agent.MaxSteps), []string{"max_steps", "yielded"}, 2},
		{"crashed", yields(agent.Crashed), []string{"crashed"}, 2},
		{"refused is never in the list", yields(agent.Refused), task.AfterEnds, 1},
		{"yielded is not in the list", yields(agent.Done), []string{"timeout"}, 1},
		{"timeout of an agent that keeps no session", nil, task.AfterEnds, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := withRounds(t)
			first := tt.first
			if first == nil {
				first = hangs
			}
			a := endsFirst(first)
			a.needs.KeepsSession = tt.first != nil
			b.agents["agent"] = a
			b.cell.Limits.AgentTime = time.Second
			b.task.Interaction.After = tt.after
			judged, left := 0, false
			supervisor := b.judges["supervisor"].verify
			b.judges["supervisor"].verify = func(ctx context.Context, r verifier.Request) (verifier.Verdict, error) {
				judged, left = judged+1, left || alive(t, unique(b.runtime))
				return supervisor(ctx, r)
			}
			r := b.run(t.Context(), t)
			turns := strings.Count(" "+phases(r)+" ", " turn ")
			if turns != tt.turns || judged != turns || r.Outcome != record.Passed || len(a.setups) != 1 || left {
				t.Errorf("%s after %d turns of %d sessions, judged %d times, alive while judged: %v; want passed after %d\n%s",
					r.Outcome, turns, len(a.setups), judged, left, tt.turns, pretty(r))
			}
			if found(r, "session_over") != (tt.first == nil) {
				t.Errorf("findings %s", pretty(r.Findings))
			}
		})
	}
}

// A turn in which nothing is recorded or logged ends, and one that is alive does
// not.
func TestATurnThatStallsEnds(t *testing.T) {
	t.Parallel()
	speaks := func(times int, log bool) *scripted {
		return turn(func(ctx context.Context, a *actor) (agent.Yield, error) {
			for range times {
				select {
				case <-ctx.Done():
					return agent.Yield{}, ctx.Err()
				case <-time.After(400 * time.Millisecond):
				}
				if log {
					_ = a.Log("alive")
				} else {
					_ = a.Step(trajectory.Step{Source: trajectory.Model, Message: trajectory.Text("alive")})
				}
			}
			if times < 5 {
				<-ctx.Done()
			}
			return agent.Yield{End: agent.Done}, nil
		})
	}
	for _, tt := range []struct {
		name           string
		a              *scripted
		startup, stall time.Duration
		end            record.AgentEnd
		after          time.Duration // at least
	}{
		{"it never speaks", speaks(0, false), 500 * time.Millisecond, time.Hour, record.Timeout, 500 * time.Millisecond},
		{"it never speaks, and has no time for a start", speaks(0, false), 0, time.Second, record.Timeout, time.Second},
		{"it falls silent", speaks(1, false), 5 * time.Second, time.Second, record.Timeout, 1400 * time.Millisecond},
		{"it goes on with steps", speaks(5, false), 5 * time.Second, time.Second, record.Yielded, 2 * time.Second},
		{"it goes on with lines", speaks(5, true), 5 * time.Second, time.Second, record.Yielded, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, tt.a, tests("true"))
			b.task.Stages[0].Agent.Startup, b.task.Stages[0].Agent.Stall = task.Duration(tt.startup), task.Duration(tt.stall)
			r := b.run(t.Context(), t)
			want(t, r, record.Passed, tt.end, record.Checked)
			if found(r, "stalled") != (tt.end == record.Timeout) || r.AgentTime < tt.after {
				t.Errorf("after %s: %s", r.AgentTime, pretty(r.Findings))
			}
		})
	}
}

// An agent that waits for its provider has not stalled. The wait counts against
// the total time only if the task says so.
func TestWaitingForAProviderIsNoStall(t *testing.T) {
	t.Parallel()
	for _, charged := range [][]string{nil, {"turn", "wait"}} {
		p := &purse{spent: make(chan struct{})}
		a := turn(func(ctx context.Context, _ *actor) (agent.Yield, error) {
			for range 30 {
				p.waited.Add(int64(100 * time.Millisecond))
				select {
				case <-ctx.Done():
					return agent.Yield{}, ctx.Err()
				case <-time.After(100 * time.Millisecond):
				}
			}
			return agent.Yield{End: agent.Done}, nil
		})
		b := withModel(t, a, tests("true"), p)
		b.task.Stages[0].Agent.Stall = task.Duration(2 * time.Second)
		b.task.Interaction = &task.Interaction{Total: task.Duration(2500 * time.Millisecond), Charged: charged}
		end := record.Yielded
		if charged != nil {
			end = record.Timeout
		}
		want(t, b.run(t.Context(), t), record.Passed, end, record.Checked)
	}
}

// With hold = "copy" the sandbox goes on while its copies are judged.
func TestTheSandboxIsHeldUntilTheCopiesAreMade(t *testing.T) {
	t.Parallel()
	b := withRounds(t)
	b.task.Interaction.Hold = task.HoldCopy
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	const wanted = "prepare create services setup setup turn freeze copy thaw judge user turn freeze copy thaw judge settle collect verify destroy publish"
	if got := phases(r); got != wanted {
		t.Errorf("phases %s\nwant   %s", got, wanted)
	}
}

// Copies, judgements and messages count against the total time if the task says
// so.
func TestWhatIsChargedToTheTotalTime(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"turn", "copy", "judge", "user"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			b := withRounds(t)
			b.task.Interaction.Charged = []string{part}
			b.task.Interaction.Total = 1 // a nanosecond, which everything takes
			if part == "turn" {
				b.task.Interaction.Total = task.Duration(time.Minute)
			}
			b.agents["agent"] = does("printf 2 >> /logs/artifacts/n")
			turns := map[string]int{"turn": 4, "copy": 1, "judge": 1, "user": 2}[part]
			r := b.run(t.Context(), t)
			if got := strings.Count(" "+phases(r)+" ", " turn "); got != turns || found(r, "interaction_time") != (part != "turn") {
				t.Errorf("%d turns; want %d: %s", got, turns, pretty(r))
			}
			over := record.OverTotal
			if part == "turn" {
				over = record.OverFollowUps
			}
			all := lines[record.Turn](t, filepath.Join(b.dir, record.TurnsFile))
			if last := all[len(all)-1]; last.Kind != record.TurnOver || last.Turn != turns || last.Over != over {
				t.Errorf("the last line is %+v, want over %q", last, over)
			}
		})
	}
}

// The user sees this round's copies of the artifacts that are for it, and no
// others, also where an artifact for others has files in the same place.
func TestTheUserSeesTheArtifactsThatAreForIt(t *testing.T) {
	t.Parallel()
	b := withRounds(t)
	b.agents["agent"] = does("printf 1 >> /logs/artifacts/n; mkdir -p /app/out /app/own/inner /app/hidden; " +
		"printf 1 >> /app/out/n; echo MARK-hidden > /app/hidden/h; echo MARK-within > /app/own/inner/w; echo x > /app/own/x; echo one > /app/one.txt")
	user := []task.Role{task.RoleVerifier, task.RoleUser}
	b.task.Stages[0].Artifacts = []task.Artifact{
		{Source: "/app/out", To: "results", Audience: user},
		{Source: "/app/one.txt", Audience: user},
		{Source: "/app/hidden"},
		{Source: "/app/own", Audience: user, Exclude: []string{"inner"}},
		{Source: "/app/own/inner"},
		{Source: "/app/out", To: "logs/artifacts/out", Audience: user},
		{Source: "/none", Audience: user},
	}
	b.judges["supervisor"].verify = func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
		if r.Round == 3 {
			return reward(verifier.Pass, 1), nil
		}
		return reward(verifier.Continue, 0), nil
	}
	var seen []string
	b.agents["user"] = &scripted{turn: func(_ context.Context, u *actor, _ agent.Message) (agent.Yield, error) {
		dir := filepath.Join(u.setup.View, views.AttemptFolder, "artifacts")
		err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				text, _ := os.ReadFile(p)
				rel, _ := filepath.Rel(dir, p)
				seen = append(seen, rel+"="+strings.TrimSpace(string(text)))
			}
			return err
		})
		return agent.Yield{End: agent.Done, Message: "go on"}, err
	}}
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	if wanted := []string{"app/one.txt=one", "results/n=1", "app/one.txt=one", "results/n=11"}; !slices.Equal(seen, wanted) {
		t.Errorf("the user sees %q; want %q", seen, wanted)
	}
	if !found(r, "artifact_hidden") {
		t.Errorf("findings %s", pretty(r.Findings))
	}
}

// busy is a machine where the place to verify is free only after a while.
type busy struct {
	after time.Duration
	waits func() // is called when an attempt begins to wait; nil: nothing is

	mu   sync.Mutex
	said []string
}

func (b *busy) say(what string, p trial.Part) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said, fmt.Sprintf("%s %d", what, p))
}

func (b *busy) Try(p trial.Part) bool {
	b.say("try", p)
	return p != trial.Verifying
}

func (b *busy) Enter(ctx context.Context, p trial.Part) error {
	b.say("enter", p)
	if p != trial.Verifying {
		return nil
	}
	if b.waits != nil {
		b.waits()
	}
	select {
	case <-time.After(b.after):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestAProcessThatIsLeftDoesNotWorkWhileItWaits has an agent that leaves a process
// running, which would have finished its work if the wait for the verification
// counted.
func TestAProcessThatIsLeftDoesNotWorkWhileItWaits(t *testing.T) {
	t.Parallel()
	places := &busy{after: 3 * time.Second}
	b := newBench(t, does("(setsid sh -c 'for i in $(seq 60); do sleep 0.1; done; echo done > /app/x' >/dev/null 2>&1 &)"), tests("test ! -e /app/x"))
	b.task.Mode = task.ModeLive
	in := b.input()
	in.Places = places
	r, err := trial.Run(t.Context(), in)
	testlevel.Must(t, err)
	want(t, r, record.Passed, record.Yielded, record.Exposed)
	if want := []string{"enter 2", "try 3", "enter 3"}; !slices.Equal(places.said, want) {
		t.Errorf("it entered %q, want %q", places.said, want)
	}
	var frozen time.Duration // since the attempt began
	for _, p := range r.Phases {
		if p.Name == record.PhaseFreeze && p.Turn == 1 {
			frozen = p.Start.Sub(r.Phases[0].Start)
		}
	}
	if r.AgentTime > frozen {
		t.Errorf("the wait is charged to the agent (%s), or nothing was frozen: %s", r.AgentTime, pretty(r.Phases))
	}
}

func TestAnAttemptThatIsCancelledWhileItWaitsForItsVerification(t *testing.T) {
	t.Parallel()
	b := newBench(t, does("true"), tests("true"))
	in := b.input()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in.Places = &busy{after: time.Hour, waits: cancel}
	r, err := trial.Run(ctx, in)
	testlevel.Must(t, err)
	want(t, r, record.Cancelled, record.Yielded, record.Unknown)
}

// The trajectory from which the agent continues is part of the trial's id: one that
// was edited after the plan was made is not used.
func TestAPriorTrajectoryThatChangedIsNotUsed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "before.json")
	sum := sha256.Sum256([]byte("before"))
	for content, want := range map[string]record.Outcome{"before": record.Passed, "edited": record.NotRun} {
		testlevel.Must(t, os.WriteFile(file, []byte(content), 0o600))
		prior := ""
		a := &scripted{needs: agent.Needs{Shell: true, TakesPrior: true}, open: func(_ context.Context, s agent.Setup) error {
			prior = s.Prior
			return nil
		}}
		b := newBench(t, a, tests("true"))
		b.cell.Agent.Prior, b.cell.Agent.PriorDigest = file, "sha256:"+hex.EncodeToString(sum[:])
		r := b.run(t.Context(), t)
		if r.Outcome != want || (prior == file) != (want == record.Passed) {
			t.Errorf("%s: %s, the agent got %q", content, r.Outcome, prior)
		}
		if want == record.NotRun && (r.Error == nil || !strings.Contains(r.Error.Message, "changed since")) {
			t.Errorf("%s: %+v", content, r.Error)
		}
	}
}
