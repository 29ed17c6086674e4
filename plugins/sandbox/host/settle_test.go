package host_test

import (
	"bytes"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m.Run, sandboxtest.Inside{})) }

// run runs a shell script and returns what it said.
func run(t *testing.T, c *sandbox.Client, script string) string {
	t.Helper()
	var out, errs bytes.Buffer
	r, err := c.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", script}, Stdout: &out, Stderr: &errs})
	if err != nil || !r.OK() {
		t.Fatalf("%s: %+v, %v (stderr %q)", script, r, err, errs.String())
	}
	return out.String()
}

// begin starts a command that stays, kept as id, and returns once it said
// something.
func begin(t *testing.T, c *sandbox.Client, id string, argv ...string) {
	t.Helper()
	said := make(chan struct{}, 1)
	go func() {
		_, _ = c.Exec(t.Context(), sandbox.Command{ID: id, Argv: argv, Stdout: writer(func([]byte) {
			select {
			case said <- struct{}{}:
			default:
			}
		})})
	}()
	select {
	case <-said:
	case <-time.After(10 * time.Second):
		t.Fatalf("%q did not begin", argv)
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

// find returns the processes whose arguments have the text.
func find(ps []host.Process, text string) (out []host.Process) {
	for _, p := range ps {
		if strings.Contains(strings.Join(p.Argv(), " "), text) && p.State != "Z" {
			out = append(out, p)
		}
	}
	return out
}

func list(t *testing.T, b *sandboxtest.Box) host.Processes {
	t.Helper()
	ps, err := b.Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

// At the end of an agent its commands end, what they left in the background
// does not: it is what live grading looks at.
func TestSettleKillsFirstProcessesOnly(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	agent, other := b.Shell("agent"), b.Shell("other")
	begin(t, agent, "server", "sh", "-c", "setsid sleep 8001 & sleep 8002 & echo up; sleep 8003; true")
	begin(t, other, "tests", "sh", "-c", "echo up; exec sleep 8004")
	testlevel.Eventually(t, "all have begun", func() bool {
		ps := list(t, b).List
		return len(find(ps, "sleep 8001")) == 2 && len(find(ps, "sleep 8002")) == 2 && len(find(ps, "sleep 8003")) == 2
	})
	if err := b.Detach(t.Context(), "agent"); err != nil {
		t.Fatal(err)
	}
	done, err := b.Settle(t.Context(), []string{"agent"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(done.Killed) != 1 || done.Killed[0].Comm != "sh" || done.Killed[0].Session != "agent" {
		t.Errorf("killed %+v, want the one shell", done.Killed)
	}
	ps := list(t, b).List
	if len(done.Left) != len(ps) || len(find(done.Left, "sleep 8001")) != 1 {
		t.Errorf("it said that %+v is left, and %+v runs", done.Left, ps)
	}
	for _, left := range []string{"sleep 8001", "sleep 8002", "sleep 8003", "sleep 8004"} {
		if len(find(ps, left)) == 0 {
			t.Errorf("%q is gone", left)
		}
	}
	if p := find(ps, "sleep 8002"); len(p) == 1 && (p[0].Parent != 1 || p[0].Session != "agent") {
		t.Errorf("an orphan in its command's kernel session is %+v, want it known as the agent's", p[0])
	}
}

func TestSettleKillsWhatRunsTheBundle(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{ManyIDs: os.Geteuid() == 0})
	agent := b.Shell("agent")
	user := "root"
	if os.Geteuid() == 0 {
		user = "alice"
	}
	run(t, agent, `mkdir -p /opt/agent/bin; cp "$(command -v sleep)" /opt/agent/bin/node; cd /opt/agent
		printf '#!/bin/sh\necho x; while :; do /bin/sleep 0.1; done\n' > tool.sh; chmod 755 tool.sh`)
	// In the background, in sessions of their own, under another user, as a
	// script of the system's interpreter, and started anew by each other.
	for _, script := range []string{
		"setsid /opt/agent/bin/node 8101 >/dev/null 2>&1 &",
		"(setsid /opt/agent/tool.sh >/dev/null 2>&1 &) ",
		"setsid sh -c 'while :; do /opt/agent/bin/node 8102; done' >/dev/null 2>&1 &",
		"setsid sleep 8103 >/dev/null 2>&1 &",
	} {
		if r, err := agent.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", script}, User: user}); err != nil || !r.OK() {
			t.Fatalf("%s: %+v, %v", script, r, err)
		}
	}
	testlevel.Eventually(t, "three run the bundle", func() bool {
		ps := list(t, b).List
		return len(find(ps, "node 8101")) == 1 && len(find(ps, "tool.sh")) > 0 && len(find(ps, "/opt/agent/bin/node 8102")) > 1
	})
	testlevel.Eventually(t, "the executable of another user's process is seen", func() bool {
		return find(list(t, b).List, "node 8101")[0].Executable == "/opt/agent/bin/node"
	})
	done, err := b.Settle(t.Context(), nil, []string{"/opt/agent"})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // time for a loop to start its program anew
	ps := list(t, b).List
	if left := find(ps, "/opt/agent"); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
	if len(find(ps, "sleep 8103")) != 1 || len(find(done.Killed, "node 8101")) != 1 {
		t.Errorf("killed %d, and a program of the system's was not spared or the bundle's not named", len(done.Killed))
	}
}

func TestSettleTerminals(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	agent := b.Shell("agent")
	for _, id := range []string{"idle", "busy"} {
		term, err := agent.Terminal(t.Context(), sandbox.TerminalSpec{ID: id, Argv: []string{"sh", "-i"}})
		if err != nil {
			t.Fatal(err)
		}
		defer term.Close()
		if id == "busy" {
			// The foreground job says more than any buffer holds: it must go on.
			_, _ = term.Write([]byte("i=0; sh -c 'while :; do head -c 100000 /dev/zero | tr \"\\\\0\" x; echo >> /tmp/rounds; done'\n"))
		}
	}
	testlevel.Eventually(t, "the job runs", func() bool { _, err := agent.Stat(t.Context(), "/tmp/rounds"); return err == nil })
	if err := b.Detach(t.Context(), "agent"); err != nil {
		t.Fatal(err)
	}
	done, err := b.Settle(t.Context(), []string{"agent"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(done.Killed) != 1 || len(done.Stopped) != 1 {
		t.Fatalf("killed %+v, stopped %+v; want one each", done.Killed, done.Stopped)
	}
	for _, p := range list(t, b).List {
		if p.PID == done.Stopped[0].PID && p.State != "T" {
			t.Errorf("the shell with a job is in state %s, want T", p.State)
		}
	}
	other := b.Shell("other")
	before := strings.TrimSpace(run(t, other, "wc -l < /tmp/rounds"))
	testlevel.Eventually(t, "the foreground job goes on writing", func() bool {
		return strings.TrimSpace(run(t, other, "wc -l < /tmp/rounds")) != before
	})
}

// A test command's daemon, however often it forked, must not outlive it; what
// was there before stays, with what it starts meanwhile.
func TestSweepKillsWhatIsNew(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	if _, err := b.StartService(t.Context(), host.Service{Name: "web", Argv: []string{"sh", "-c", "while :; do sleep 0.21; done"}}); err != nil {
		t.Fatal(err)
	}
	begin(t, b.Shell("agent"), "server", "sh", "-c", "echo up; while :; do sh -c 'sleep 0.22; true'; done")
	before := list(t, b)
	tests := b.Shell("tests")
	run(t, tests, "setsid sh -c '(setsid sleep 8201 & ) ; setsid sleep 8202 & ' >/dev/null 2>&1; (setsid sh -c 'while :; do setsid sh -c \"sleep 0.01; sleep 0.01\" & sleep 0.01; done' >/dev/null 2>&1 &)")
	testlevel.Eventually(t, "the daemons run", func() bool { return len(find(list(t, b).List, "sleep 8202")) > 0 })
	since := list(t, b).Since(before.Keys())
	if len(find(since, "sleep 8201")) == 0 || len(find(since, "0.21"))+len(find(since, "0.22")) != 0 {
		t.Errorf("new are said to be %+v", since)
	}
	killed, err := b.Sweep(t.Context(), before.Keys())
	if err != nil {
		t.Fatal(err)
	}
	if len(find(killed, "sleep 8201")) == 0 || len(find(killed, "sleep 8202")) == 0 || len(find(killed, "0.22"))+len(find(killed, "0.21")) != 0 {
		t.Errorf("killed %+v", killed)
	}
	ps := list(t, b)
	if left := ps.Since(before.Keys()); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
	if len(find(ps.List, "0.22")) == 0 || len(find(ps.List, "0.21")) == 0 {
		t.Error("what was there before was killed")
	}
}

func TestServicesAreRestarted(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	ctx := t.Context()
	web := host.Service{Name: "web", Argv: sandboxtest.Program("listen", "tcp", "127.0.0.1:8300"), Env: []string{"X=1"}, Dir: "/app"}
	pid, err := b.StartService(ctx, web)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = b.StartService(ctx, web); err == nil {
		t.Error("a service was started twice")
	}
	if _, err = b.StartService(ctx, host.Service{Name: "once", Argv: []string{"sh", "-c", "echo hello; echo oops >&2; exit 3"}}); err != nil {
		t.Fatal(err)
	}
	state := func() []host.ServiceState {
		s, failed := b.Services(ctx)
		if failed != nil || len(s) != 2 {
			t.Fatalf("services %+v, %v", s, failed)
		}
		return s
	}
	testlevel.Eventually(t, "one listens and one has ended", func() bool {
		s := state()
		return s[1].Exit != nil && string(s[1].Output) == "hello\noops\n" && strings.Contains(string(s[0].Output), ":8300")
	})
	if s := state(); s[0].PID != pid || s[1].PID != 0 || s[1].Exit.ExitCode != 3 {
		t.Errorf("services are %+v", s)
	}
	killed, err := b.Quiesce(ctx)
	if err != nil || len(killed) != 1 || killed[0].Service != "web" ||
		!slices.Equal(killed[0].Listening, []host.Socket{{Network: "tcp", Address: "127.0.0.1:8300"}}) {
		t.Errorf("quiesced %+v, %v; want the service and where it listened", killed, err)
	}
	if ps := list(t, b); len(ps.List) != 0 {
		t.Errorf("left after Quiesce: %+v", ps.List)
	}
	names, _, err := b.RestartServices(ctx)
	if err != nil || !slices.Equal(names, []string{"web", "once"}) {
		t.Errorf("restarted %v, %v", names, err)
	}
	testlevel.Eventually(t, "it listens again", func() bool { _, err := b.Dial(ctx, 8300); return err == nil })
	if s := state(); s[0].PID == pid {
		t.Errorf("services are %+v", s)
	}
}

func TestListeningIsAttributed(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{ManyIDs: os.Geteuid() == 0})
	user := "root"
	if os.Geteuid() == 0 {
		user = "alice"
	}
	c := b.ShellOf(host.Session{ID: "agent", User: user})
	for network, address := range map[string]string{"tcp": "127.0.0.1:8401", "tcp6": "[::]:8402", "udp": "127.0.0.1:8403", "unix": "/tmp/server.sock"} {
		begin(t, c, network, sandboxtest.Program("listen", network, address)...)
	}
	p, err := b.Listen(t.Context(), 8404, func(c net.Conn) { _ = c.Close() })
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	got := map[string]string{}
	ps := list(t, b)
	for _, q := range ps.List {
		for _, s := range q.Listening {
			got[q.Argv()[3]] += s.Network + " " + s.Address
		}
	}
	for network, want := range map[string]string{
		"tcp": "tcp 127.0.0.1:8401", "tcp6": "tcp [::]:8402", "udp": "udp 127.0.0.1:8403", "unix": "unix /tmp/server.sock",
	} {
		if got[network] != want {
			t.Errorf("%s: listening is %q, want %q", network, got[network], want)
		}
	}
	if len(ps.Unattributed) != 0 {
		t.Errorf("unattributed: %+v", ps.Unattributed)
	}
}

// Whether an image lacks what a session needs can be told as long as that has
// started nothing.
func TestWhatASessionHasStarted(t *testing.T) {
	t.Parallel()
	b, ctx := sandboxtest.Start(t, sandboxtest.Options{}), t.Context()
	c := b.Shell("agent")
	check := func(started uint64, refused string) {
		t.Helper()
		if s, err := b.Starts(ctx, "agent"); err != nil || s.Started != started || (s.Refused == "") != (refused == "") || !strings.Contains(s.Refused, refused) {
			t.Errorf("%+v, %v; want %d started, refused %q", s, err, started, refused)
		}
	}
	check(0, "")
	if err := c.Upload(ctx, "/tmp", strings.NewReader(""), sandbox.UploadOptions{User: "nobody-of-that-name"}); err == nil {
		t.Error("a user that is not there owns an upload")
	}
	check(0, `no user "nobody-of-that-name"`)
	if _, err := c.Exec(ctx, sandbox.Command{Argv: []string{"no-such-program"}}); err == nil {
		t.Error("a program that is not there was started")
	}
	check(0, `no user "nobody-of-that-name"`)
	run(t, c, "true")
	check(1, "no user")
	if s, err := b.Starts(ctx, "nobody"); err != nil || s.Started != 0 || s.Refused != "" {
		t.Errorf("a session that does not exist: %+v, %v", s, err)
	}
	other := b.Shell("other")
	if _, err := other.Terminal(ctx, sandbox.TerminalSpec{ID: "t", Argv: []string{"no-such-program"}}); err == nil {
		t.Error("a terminal with a program that is not there was opened")
	}
	if s, err := b.Starts(ctx, "other"); err != nil || s.Started != 0 || !strings.Contains(s.Refused, "no-such-program") {
		t.Errorf("a terminal: %+v, %v", s, err)
	}
}
