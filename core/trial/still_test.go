package trial_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
)

// wakes is a process that wakes itself after it was stopped, by timers that send
// SIGCONT. It counts in one artifact and then in another. A folder
// between both takes a while to copy.
const wakes = `mkdir -p /app/out /app/slow; cd /app/slow; seq 2000 | xargs touch; cd /app
cat > /app/wakes.pl <<'END'
for my $n (2..40) { # one each tenth of a second, as a SIGSTOP discards a pending SIGCONT
  my ($id, $how, $when) = (pack("i", 0), pack("q i i x48", 0, 18, 0), pack("q4", 0, 0, int($n / 10), $n % 10 * 100000000));
  syscall(222, 1, $how, $id) == 0 or die "timer_create: $!";
  my $timer = unpack "i", $id;
  syscall(223, $timer, 0, $when, 0) == 0 or die "timer_settime: $!";
}
for (my $n = 1; ; $n++) { for my $f ("a", "b") { open F, ">/app/new"; print F "$n\n"; close F; rename "/app/new", "/app/out/$f" } }
END
setsid perl /app/wakes.pl > /app/said 2>&1 & until test -e /app/out/b; do sleep 0.01; done`

// A process that goes on although it was stopped changes artifacts between their
// copies. When the agent's sandbox is not needed any more, nothing runs in it.
func TestNothingRunsWhileArtifactsAreExported(t *testing.T) {
	t.Parallel()
	damaged := false // not each time: the copies may be done before it wakes
	for _, stages := range []int{1, 2, 2, 2, 2, 2} {
		if damaged {
			break
		}
		b := newBench(t, does(wakes), tests(`cat /app/out/a /app/out/b >&2; a=$(cat /app/out/a); b=$(cat /app/out/b); test $((a-b)) -le 1 && test $((b-a)) -le 0`))
		b.task.Mode = task.ModeSeparate
		b.task.Stages[0].Artifacts = []task.Artifact{{Source: "/app/out/a"}, {Source: "/app/slow"}, {Source: "/app/out/b"}}
		if stages == 2 { // the damage: the sandbox is only frozen, as the second stage goes on in it
			b.task.Stages = append(b.task.Stages, b.task.Stages[0])
			b.task.Stages[1].Name, b.task.Stages[1].Verifiers = "second", nil
		}
		r := b.run(t.Context(), t)
		if stages == 1 && r.Outcome != record.Passed {
			t.Errorf("%s, want passed: %s %+v", r.Outcome, pretty(r.Stages), r.Error)
		}
		damaged = r.Outcome == record.Failed
		seen := slices.ContainsFunc(r.Findings, func(f record.Finding) bool {
			return f.Code == "ran_while_frozen" && strings.Contains(f.Text, "wakes.pl")
		})
		if damaged && !seen {
			t.Errorf("a process went on in a frozen sandbox, and nobody saw it: %s %+v", r.Integrity, r.Findings)
		}
	}
	if !damaged {
		t.Error("no process went on in a frozen sandbox")
	}
}

// losing is an environment that remembers the first sandbox.
type losing struct {
	environment.Environment

	made string
}

func (l *losing) Create(ctx context.Context, spec environment.Spec) (environment.Sandbox, error) {
	made, err := l.Environment.Create(ctx, spec)
	if l.made == "" {
		l.made = made.ID
	}
	return made, err
}

// As long as the agent's sandbox is not stopped, only the agent can have ended it.
func TestASandboxIsLostBeforeItsWorkIsCopied(t *testing.T) {
	t.Parallel()
	b := newBench(t, does("echo 1 > /app/x"), tests("test -e /app/x"))
	b.task.Mode = task.ModeImage
	l := &losing{}
	b.env = func(e environment.Environment) environment.Environment {
		l.Environment = e
		return l
	}
	b.live = func(e record.Event) {
		if e.Type == record.EventPhaseStart && e.Phase == record.PhaseCreate && e.Stage != "" {
			_, _ = l.Destroy(context.WithoutCancel(t.Context()), l.made)
		}
	}
	r := b.run(t.Context(), t)
	if r.Outcome != record.AgentError || r.AgentEnd != record.SandboxLost || r.Stages[0].VerifierImage != nil {
		t.Errorf("%s, %s: want %s, %s", r.Outcome, r.AgentEnd, record.AgentError, record.SandboxLost)
	}
	if r.Error == nil || !strings.Contains(r.Error.Message, "lost") || r.Error.Retry {
		t.Errorf("error %+v", r.Error)
	}
}
