package trial_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/egress"
	"github.com/berth-eval/berth/plugins/task"
)

// listener is a script that leaves a server running on a socket with the path
// name, and waits until the server listens.
const listener = `python3 - <<'E'
import os, socket
s = socket.socket(socket.AF_UNIX); s.bind("/app/sock"); s.listen()
if os.fork() == 0:
    os.setsid()
    for fd in (0, 1, 2): os.close(fd)
    while True: s.accept()[0].send(b"ok")
E`

const asks = `python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect("/app/sock"); assert s.recv(2) == b"ok"'`

func TestModes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, does, test string
		mode             task.Mode
		outcome          record.Outcome
		integrity        record.Integrity
		sameAs           string
		finding, not     string
	}{
		{"restarted, honest", "echo 1 > /app/x", "test -s /app/x", task.ModeRestarted, record.Passed, record.Checked, "", "", "processes_ended"},
		{"restarted, a server is needed", listener, asks, task.ModeRestarted, record.Failed, record.Checked, "", "processes_ended", "left_running"},
		{"restarted, a daemon", "(setsid sleep 1000 &) ; echo 1 > /app/x", "! pgrep sleep", task.ModeRestarted, record.Passed, record.Checked, "", "processes_ended", "left_running"},
		{"restarted, fails without a process", "(setsid sleep 1000 &)", "pgrep sleep", task.ModeRestarted, record.Failed, record.Checked, "", "processes_ended", "left_running"},
		{"restarted, nothing left", "true", "true", task.ModeRestarted, record.Passed, record.Checked, "", "", "processes_ended"},
		{"image, a server is needed", listener, asks, task.ModeImage, record.Failed, record.Checked, "", "processes_ended", "left_running"},
		{"separate, a server is needed", "echo 1 > /app/x\n" + listener, asks, task.ModeSeparate, record.Failed, record.Checked, "", "processes_ended", "left_running"},
		{"live, a server is needed", listener, asks, task.ModeLive, record.Passed, record.Exposed, "", "left_running", "processes_ended"},
		{"live, nothing left", "echo 1 > /app/x", "test -s /app/x", task.ModeLive, record.Passed, record.Checked, "restarted", "", "left_running"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			needs(t, tt.does, tt.test)
			b := newBench(t, does(tt.does), tests(tt.test))
			b.task.Mode = tt.mode
			if tt.mode == task.ModeSeparate {
				b.task.Stages[0].Artifacts = []task.Artifact{{Source: "/app/x"}}
			}
			r := b.run(t.Context(), t)
			want(t, r, tt.outcome, record.Yielded, tt.integrity)
			if r.SameAs != tt.sameAs || r.Mode != string(tt.mode) {
				t.Errorf("mode %q, same as %q; want %q", r.Mode, r.SameAs, tt.sameAs)
			}
			if tt.finding != "" && !found(r, tt.finding) {
				t.Errorf("no finding %s: %s", tt.finding, pretty(r.Findings))
			}
			if tt.not != "" && found(r, tt.not) {
				t.Errorf("finding %s: %s", tt.not, pretty(r.Findings))
			}
		})
	}
}

func TestAnExperimentMakesAModeStricterOnly(t *testing.T) {
	t.Parallel()
	needs(t, listener)
	b := newBench(t, does(listener), tests(asks))
	b.task.Mode, b.cell.Verify = task.ModeLive, task.ModeRestarted
	if r := b.run(t.Context(), t); r.Mode != "restarted" || !found(r, "processes_ended") {
		t.Errorf("mode %s, findings %s", r.Mode, pretty(r.Findings))
	}
	b = newBench(t, does("true"), tests("true"))
	b.task.Mode, b.cell.Verify = task.ModeRestarted, task.ModeLive
	r := b.run(t.Context(), t)
	want(t, r, record.NotRun, "", record.Unknown)
	if r.Error == nil || !strings.Contains(r.Error.Message, "not stricter") {
		t.Errorf("error %+v", r.Error)
	}
}

// withTests adds a folder resource of the verifier at /tests.
func withTests(t *testing.T, b *bench, files map[string]string) {
	t.Helper()
	r := task.Resource{
		Name: "tests", Path: "tests", Place: "/tests", Phase: task.PlaceVerify, Audience: []task.Role{task.RoleVerifier}, Folder: true,
	}
	testlevel.Must(t, os.Mkdir(filepath.Join(b.task.Dir, "tests"), 0o700))
	for name, body := range files {
		testlevel.Must(t, os.WriteFile(filepath.Join(b.task.Dir, "tests", name), []byte(body), 0o600))
		r.Entries = append(r.Entries, task.Entry{Path: name, Mode: 0o755, Size: int64(len(body))})
	}
	b.task.Resources = append(b.task.Resources, r)
}

func TestTheVerifiersFilesComeAfterTheAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t, does(`
		[ ! -e /tests/test.sh ] || exit 3
		mkdir -p /tests /logs/verifier
		echo 'exit 0' > /tests/test.sh; echo planted > /tests/conftest.py; echo 1 > /logs/verifier/reward.txt`),
		tests(`echo log > /logs/verifier/ctrf.json; [ ! -e /tests/conftest.py ] && [ ! -e /logs/verifier/reward.txt ] && sh /tests/test.sh`))
	withTests(t, b, map[string]string{"test.sh": "echo built > /tests/out; exit 0"})
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	if kept, err := os.ReadFile(filepath.Join(b.dir, "verifier/logs/ctrf.json")); err != nil || string(kept) != "log\n" {
		t.Errorf("the verifier's log: %q, %v", kept, err)
	}
	if !found(r, "planted") || found(r, "tests_changed") {
		t.Errorf("findings %s", pretty(r.Findings))
	}
}

// within waits in a shell until a condition holds.
func within(condition string) string { return "until " + condition + "; do sleep 0.1; done" }

func TestChangesOfTheVerifiersFilesAreSeen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, does, test string
		mode             task.Mode
		integrity        record.Integrity
	}{
		{"by the tests themselves", "true", "echo changed > /tests/data", task.ModeRestarted, record.Checked},
		{
			"by what the agent left", "(setsid sh -c 'while ! [ -e /tests/data ]; do sleep 0.01; done; echo forged > /tests/data' >/dev/null 2>&1 &)",
			within("grep -q forged /tests/data"), task.ModeLive, record.Exposed,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			needs(t, tt.does, tt.test)
			b := newBench(t, does(tt.does), tests(tt.test))
			b.task.Mode = tt.mode
			withTests(t, b, map[string]string{"data": "honest"})
			r := b.run(t.Context(), t)
			want(t, r, record.Passed, record.Yielded, tt.integrity)
			if !found(r, "tests_changed") {
				t.Errorf("findings %s", pretty(r.Findings))
			}
		})
	}
}

func TestAccessEndsWithTheTurn(t *testing.T) {
	t.Parallel()
	late := make(chan error, 1)
	var judged chan struct{}
	a := does("true")
	honest := a.turn
	a.turn = func(ctx context.Context, act *actor, m agent.Message) (agent.Yield, error) {
		go func() {
			<-judged // the verifier is at work now
			_, err := act.shell.Exec(context.WithoutCancel(ctx), sandbox.Command{Argv: []string{"touch", "/app/late"}})
			late <- err
		}()
		return honest(ctx, act, m)
	}
	judged = make(chan struct{})
	j := tests("sleep 0.3; test ! -e /app/late")
	honestly := j.verify
	j.verify = func(ctx context.Context, r verifierRequest) (verifierVerdict, error) {
		close(judged)
		return honestly(ctx, r)
	}
	b := newBench(t, a, j)
	b.task.Mode = task.ModeLive
	want(t, b.run(t.Context(), t), record.Passed, record.Yielded, record.Checked)
	if err := <-late; err == nil {
		t.Error("a command after the turn was carried out")
	}
}

func TestADeadlineCutsFirstAndGradesWhatIsThere(t *testing.T) {
	t.Parallel()
	cleaned := make(chan error, 1)
	a := &scripted{needs: agent.Needs{Shell: true}, turn: func(ctx context.Context, act *actor, _ agent.Message) (agent.Yield, error) {
		if err := act.sh(ctx, "echo 1 > /app/x"); err != nil {
			return agent.Yield{}, err
		}
		<-ctx.Done()
		cleaned <- act.sh(context.WithoutCancel(ctx), "rm /app/x") // a plugin's own clean-up
		return agent.Yield{}, ctx.Err()
	}}
	b := newBench(t, a, tests("test -s /app/x"))
	b.task.Stages[0].Agent.Time = task.Duration(3 * time.Second)
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Timeout, record.Checked)
	if err := <-cleaned; err == nil {
		t.Error("the plugin's clean-up still reached the sandbox")
	}
	if r.AgentTime < 3*time.Second {
		t.Errorf("agent time %s", r.AgentTime)
	}
}

// An agent that notices the loss of its sandbox can still return what it knows,
// because its call is not cancelled at once.
func TestWhatIsSaidAtADeadlineIsHeard(t *testing.T) {
	t.Parallel()
	a := &scripted{needs: agent.Needs{Shell: true}, turn: func(ctx context.Context, act *actor, _ agent.Message) (agent.Yield, error) {
		if err := act.sh(ctx, "sleep 3000"); !errors.Is(err, sandbox.ErrRevoked) {
			return agent.Yield{}, fmt.Errorf("the command ended with %w", err)
		}
		select { // a plugin of its own process needs a moment
		case <-ctx.Done():
			return agent.Yield{}, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
			return agent.Yield{End: agent.Crashed, Reason: "last words"}, act.Log("said")
		}
	}}
	b := newBench(t, a, tests("true"))
	b.task.Stages[0].Agent.Time, b.task.Stages[0].Agent.TimeKey = task.Duration(3*time.Second), "agent.timeout_sec"
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Timeout, record.Checked)
	turns := lines[record.Turn](t, filepath.Join(b.dir, record.TurnsFile))
	if len(turns) != 2 || turns[1].Reason != "the time of the turn is over: it was stopped after 3 s (agent.timeout_sec); last words" {
		t.Errorf("turns %+v", turns)
	}
}

func TestCopiesNeedNoSandbox(t *testing.T) {
	t.Parallel()
	j := looks(func(r verifierRequest) bool {
		data, err := os.ReadFile(filepath.Join(r.View, "attempt/artifacts/logs/artifacts/answer"))
		return err == nil && string(data) == "42\n" && r.Shell == ""
	})
	b := newBench(t, does("echo 42 > /logs/artifacts/answer"), j)
	b.task.Mode, b.cell.Verify = task.ModeLive, task.ModeCopies
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	if r.Mode != string(task.ModeCopies) {
		t.Errorf("mode %s", r.Mode)
	}
}

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

// An agent without a shell cannot have changed a program, so that one that the
// task itself changes is not the agent's.
func TestOnlyAnAgentWithAShellChangesTools(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		needs     agent.Needs
		integrity record.Integrity
	}{
		{"without a shell", agent.Needs{}, record.Checked},
		{"with a shell", agent.Needs{Shell: true}, record.Exposed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, &scripted{needs: tt.needs}, tests("true"))
			b.task.Stages[0].Hooks = []task.Command{{Argv: []string{"sh", "-c", "echo '#!/bin/sh' > /usr/bin/new-tool && chmod 755 /usr/bin/new-tool"}}}
			r := b.run(t.Context(), t)
			want(t, r, record.Passed, record.Yielded, tt.integrity)
			if found(r, "system_changed") != tt.needs.Shell {
				t.Errorf("findings %+v", r.Findings)
			}
		})
	}
}

// ask defines a shell function that requests / of a host through the proxy in
// the variables, and succeeds if it gets a response.
const ask = `ask() { bash -c 'exec 3<>/dev/tcp/127.0.0.1/${http_proxy##*:} || exit 1
printf "CONNECT $1:80 HTTP/1.1\r\n\r\nGET / HTTP/1.0\r\n\r\n" >&3; cat <&3' - "$1" | grep -q served; }
none() { ! grep -v -w lo /proc/net/route | grep -v Iface; }
`

// Each phase reaches the hosts that it lists, and only through the core.
func TestListsOfHosts(t *testing.T) {
	t.Parallel()
	testlevel.Program(t, "bash", "bash") // whose /dev/tcp is the client here
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") }))
	t.Cleanup(server.Close)
	b := newBench(t, does(ask+"none && ask good.test && ! ask tests.test && ! ask setup.test && ! ask evil.test && ! ask 127.0.0.1"),
		tests(ask+"none && ask tests.test && ! ask good.test && ! ask down.test"))
	s := &b.task.Stages[0]
	b.task.Environment.Network = task.Network{Mode: task.NetworkAllow, Allow: []string{"setup.test"}}
	s.Setup = []task.Command{{Argv: []string{"sh", "-c", ask + "ask setup.test && ! ask good.test"}}}
	s.Agent.Network = &task.Network{Mode: task.NetworkAllow, Allow: []string{"good.test"}}
	s.Verify.Network = &task.Network{Mode: task.NetworkAllow, Allow: []string{"tests.test", "down.test"}}
	in := b.input()
	in.Egress = egress.Options{
		Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
			if name == "evil.test" {
				t.Errorf("%s was looked up", name)
			}
			if name == "down.test" {
				return nil, errors.New("no such host")
			}
			return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
		},
		Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
		},
	}
	r, err := trial.Run(t.Context(), in)
	testlevel.Must(t, err)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	if len(r.Modified) > 0 || r.Granted == nil || !strings.Contains(r.Granted.How, "CONNECT") {
		t.Errorf("modified %q, granted %+v", r.Modified, r.Granted)
	}
	const offline = "the verification could not reach down.test, good.test (look up down.test: no such host), "
	if !slices.ContainsFunc(r.Findings, func(f record.Finding) bool { return f.Code == "tests_offline" && strings.HasPrefix(f.Text, offline) }) {
		t.Errorf("no finding of the tests' downloads in %s", pretty(r.Findings))
	}
	for _, host := range []string{"evil.test", "127.0.0.1", "tests.test", "setup.test"} {
		if !slices.ContainsFunc(r.Findings, func(f record.Finding) bool { return f.Code == "host_refused" && strings.HasPrefix(f.Text, host+" ") }) {
			t.Errorf("no finding of %s in %s", host, pretty(r.Findings))
		}
	}
}
