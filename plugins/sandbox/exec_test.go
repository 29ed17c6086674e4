package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m.Run, sandboxtest.Inside{})) }

// run runs a shell script and returns what it said.
func run(t *testing.T, c *sandbox.Client, script string) (stdout string, r sandbox.Result) {
	t.Helper()
	var out, errs bytes.Buffer
	r, err := c.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", script}, Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatalf("%s: %v (stderr %q)", script, err, errs.String())
	}
	return out.String(), r
}

// running is true if a process inside has the text in its arguments.
func running(t *testing.T, b *sandboxtest.Box, text string) bool {
	t.Helper()
	ps, err := b.Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ps.List {
		if p.State != "Z" && strings.Contains(strings.Join(p.Argv(), " "), text) {
			return true
		}
	}
	return false
}

func TestExitCodeIsAResult(t *testing.T) {
	t.Parallel()
	c := sandboxtest.Start(t, sandboxtest.Options{}).Shell("agent")
	var out, errs bytes.Buffer
	r, err := c.Exec(t.Context(), sandbox.Command{
		Argv: []string{"sh", "-c", "echo out; echo err >&2; cat; exit 43"}, Stdout: &out, Stderr: &errs,
	})
	if err != nil || r.ExitCode != 43 || r.OK() || r.Signal != 0 || out.String() != "out\n" || errs.String() != "err\n" {
		t.Errorf("got %+v, %v, stdout %q, stderr %q; want exit code 43 and both outputs", r, err, &out, &errs)
	}
	if _, r = run(t, c, "kill -TERM $$"); r.ExitCode != -1 || r.Signal != syscall.SIGTERM || r.Killed {
		t.Errorf("a command that ended by SIGTERM is %+v", r)
	}
}

func TestStandardInputAndOutputCarryAnyBytes(t *testing.T) {
	t.Parallel()
	c := sandboxtest.Start(t, sandboxtest.Options{}).Shell("agent")
	in := make([]byte, 24<<20)
	for i := range in {
		in[i] = byte(i * 7919 >> 8)
	}
	var out bytes.Buffer
	r, err := c.Exec(t.Context(), sandbox.Command{Argv: []string{"cat"}, Stdin: bytes.NewReader(in), Stdout: &out})
	if err != nil || !r.OK() || !bytes.Equal(out.Bytes(), in) {
		t.Errorf("got %+v, %v and %d bytes; want the %d bytes that went in", r, err, out.Len(), len(in))
	}
}

func TestEnvironmentFolderAndUser(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	c := b.ShellOf(host.Session{ID: "agent", Dir: "/app", Env: []string{"A=session", "B=session", "RAW=\xff\xfe"}})
	hostname, err := os.Hostname() // the sandboxes of these tests have no name of their own
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		cmd  sandbox.Command
		want string
	}{
		{"the session's", sandbox.Command{Argv: []string{"sh", "-c", `echo "$A $B $PWD $HOME"`}}, "session session /app /root\n"},
		{"its own", sandbox.Command{
			Argv: []string{"sh", "-c", `echo "$A $B $PWD"`}, Env: []string{"A=own", "C="}, Dir: "/tmp",
		}, "own session /tmp\n"},
		{"a relative folder", sandbox.Command{Argv: []string{"pwd"}, Dir: "../var"}, "/var\n"},
		{"bytes that are not UTF-8", sandbox.Command{Argv: []string{"sh", "-c", `printf '%s%s' "$RAW" "$1"`, "sh", "\xc3\x28"}}, "\xff\xfe\xc3\x28"},
		{"no inherited descriptors", sandbox.Command{Argv: []string{"sh", "-c", "ls /proc/self/fd | wc -l"}}, "4\n"},
		{
			"no inherited environment",
			sandbox.Command{Argv: []string{"env"}, Env: []string{"PATH=/usr/bin:/bin", "RAW=x"}},
			"PATH=/usr/bin:/bin\nHOME=/root\nHOSTNAME=" + hostname + "\nA=session\nB=session\nRAW=x\n",
		},
	} {
		var out bytes.Buffer
		tt.cmd.Stdout = &out
		if r, err := c.Exec(t.Context(), tt.cmd); err != nil || !r.OK() || out.String() != tt.want {
			t.Errorf("%s: got %q, %+v, %v; want %q", tt.name, out.String(), r, err, tt.want)
		}
	}
}

func TestUserByNameOrNumber(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{ManyIDs: true})
	c := b.ShellOf(host.Session{ID: "agent", User: "alice"})
	for _, tt := range []struct{ user, want string }{
		{"", "1000:1000:1000 50:/home/alice"},
		{"alice", "1000:1000:1000 50:/home/alice"},
		{"1001", "1001:100:100 50:/home/bob"},
		{"7777", "7777:0:0:/"},
		{"root", "0:0:0:/root"},
	} {
		var out bytes.Buffer
		r, err := c.Exec(t.Context(), sandbox.Command{
			Argv: []string{"sh", "-c", `echo "$(id -u):$(id -g):$(id -G):$HOME"; grep -E 'Cap(Inh|Amb)' /proc/self/status`}, User: tt.user, Stdout: &out,
		})
		want := tt.want + "\nCapInh:\t0000000000000000\nCapAmb:\t0000000000000000\n"
		if err != nil || !r.OK() || out.String() != want {
			t.Errorf("user %q: got %q, %+v, %v; want %q", tt.user, out.String(), r, err, want)
		}
	}
	for _, user := range []string{"nobody-here", "alice:nogroup", "4294967295"} {
		if _, err := c.Exec(t.Context(), sandbox.Command{Argv: []string{"true"}, User: user}); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("user %q: got %v, want ErrNotFound", user, err)
		}
	}
	// A user made inside is found at once.
	if _, r := run(t, b.Shell("root"), "echo eve:x:3000:3000::/:/bin/sh >> /etc/passwd"); !r.OK() {
		t.Fatal("cannot add a user")
	}
	if r, err := c.Exec(t.Context(), sandbox.Command{Argv: []string{"true"}, User: "eve"}); err != nil || !r.OK() {
		t.Errorf("a user made inside: %+v, %v", r, err)
	}
}

func TestWhatCannotStartIsAnError(t *testing.T) {
	t.Parallel()
	c := sandboxtest.Start(t, sandboxtest.Options{}).Shell("agent")
	run(t, c, "cd /tmp; echo x > plain; printf '#!/nowhere/sh\n' > orphan; chmod +x orphan")
	for _, tt := range []struct {
		name string
		cmd  sandbox.Command
		want error
	}{
		{"no such program", sandbox.Command{Argv: []string{"nope"}}, sandbox.ErrNoProgram},
		{"no such path", sandbox.Command{Argv: []string{"/nope/nope"}}, sandbox.ErrNoProgram},
		{"not executable", sandbox.Command{Argv: []string{"/tmp/plain"}}, sandbox.ErrDenied},
		{"no interpreter", sandbox.Command{Argv: []string{"/tmp/orphan"}}, sandbox.ErrNoProgram},
		{"no such folder", sandbox.Command{Argv: []string{"true"}, Dir: "/nope"}, sandbox.ErrNotFound},
		{"no program", sandbox.Command{}, sandbox.ErrInvalid},
		{"zero byte", sandbox.Command{Argv: []string{"echo", "a\x00b"}}, sandbox.ErrInvalid},
		{"odd environment", sandbox.Command{Argv: []string{"true"}, Env: []string{"=x"}}, sandbox.ErrInvalid},
	} {
		if r, err := c.Exec(t.Context(), tt.cmd); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %+v, %v; want %v", tt.name, r, err, tt.want)
		}
	}
}

// A server that is left in the background must not hold up its command, nor die
// of what it says afterwards, nor drown the end of its command in output.
func TestBackgroundChildHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	c := b.Shell("agent")
	out, _ := run(t, c, "(while sleep 0.05; do echo still here; done) & echo done") // who waits for the child waits for ever
	if !strings.HasPrefix(out, "done\n") {
		t.Errorf("a quiet child: %q", out)
	}
	out, _ = run(t, c, "yes flooding & echo done")
	if !strings.Contains(out, "done\n") {
		t.Errorf("a flooding child: %d bytes", len(out))
	}
	run(t, c, "sleep 0.3")
	for _, p := range []string{"yes flooding", "sleep 0.05"} { // the loop has moments without its sleep
		testlevel.Eventually(t, p+" goes on", func() bool { return running(t, b, p) })
	}
}

func TestCancelKillsTheTreeBeforeItReturns(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	for name, stdin := range map[string]io.Reader{
		"quiet": nil,
		// The kill must not wait behind input that the command does not read.
		"with unread input": bytes.NewReader(make([]byte, 32<<20)),
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		r, err := b.Shell("agent").Exec(ctx, sandbox.Command{
			Argv: []string{"sh", "-c", "setsid sleep 7003 & echo begun; sleep 7004"}, Stdin: stdin, Stdout: first(func() { cancel(why) }),
		})
		if !errors.Is(err, why) || !r.Killed {
			t.Errorf("%s: got %+v, %v; want it killed and the cause", name, r, err)
		}
		if running(t, b, "sleep 700") {
			t.Errorf("%s: a process outlived the cancel", name)
		}
	}
}

// first calls do once something is written to it.
func first(do func()) io.Writer { return written(sync.OnceFunc(do)) }

type written func()

func (w written) Write(b []byte) (int, error) { w(); return len(b), nil }

func TestFailingWriterEndsTheCommand(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	r, w := io.Pipe()
	_ = r.CloseWithError(errors.New("disk full"))
	_, err := b.Shell("agent").Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", "echo x; sleep 7005"}, Stdout: w})
	if err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got %v, want the writer's error", err)
	}
	testlevel.Eventually(t, "the command ends", func() bool { return !running(t, b, "sleep 7005") })
}

// A plugin that crashes, or whose access is cut at a deadline, must not take
// with it what is going to be graded.
func TestBrokenConnectionKillsNothing(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	c := b.Shell("agent")
	ended := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		_, err := c.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", "echo begun; while :; do echo x; sleep 0.01; done"}, Stdout: first(func() { close(begun) })})
		ended <- err
	}()
	<-begun
	if err := b.Detach(t.Context(), "agent"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, sandbox.ErrRevoked) {
		t.Errorf("the cut call ended with %v, want ErrRevoked", err)
	}
	other := b.Shell("other")
	run(t, other, "sleep 0.2")
	if !running(t, b, "while :") {
		t.Error("the command died with its connection")
	}
}

func TestKeptCommandIsJoined(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := b.Shell("agent").Exec(ctx, sandbox.Command{
		ID: "job", Argv: []string{"sh", "-c", "echo one; echo two >&2; while [ ! -e /tmp/go ]; do sleep 0.01; done; echo three; exit 7"}, Stdout: first(cancel),
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("leaving a kept command: %v", err)
	}
	c := b.Shell("agent") // another connection of the same session
	if _, err = c.Exec(t.Context(), sandbox.Command{ID: "job", Argv: []string{"true"}}); !errors.Is(err, sandbox.ErrExists) {
		t.Errorf("its id a second time: %v, want ErrExists", err)
	}
	if _, err = b.Shell("stranger").Join(t.Context(), sandbox.Joining{ID: "job"}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("another session joins: %v, want ErrNotFound", err)
	}
	run(t, c, "touch /tmp/go")
	var out, errs bytes.Buffer
	r, err := c.Join(t.Context(), sandbox.Joining{ID: "job", Stdout: &out, Stderr: &errs})
	if err != nil || r.ExitCode != 7 || out.String() != "one\nthree\n" || errs.String() != "two\n" {
		t.Errorf("joined: %+v, %v, %q, %q", r, err, out.String(), errs.String())
	}
	out.Reset()
	var at [2]int64
	r, err = c.Join(t.Context(), sandbox.Joining{ID: "job", Stdout: &out, StdoutOffset: 4, StderrOffset: 4, Joined: func(o, e int64) { at = [2]int64{o, e} }})
	if err != nil || r.ExitCode != 7 || out.String() != "three\n" || at != [2]int64{4, 4} {
		t.Errorf("joined after its end: %+v, %v, %q, at %v", r, err, out.String(), at)
	}
}

func TestKeptCommandWithoutAClientIsNotBlocked(t *testing.T) {
	t.Parallel()
	c := sandboxtest.Start(t, sandboxtest.Options{}).Shell("agent")
	ctx, cancel := context.WithCancel(t.Context())
	_, _ = c.Exec(ctx, sandbox.Command{ID: "big", Argv: []string{"sh", "-c", "echo begun; head -c 3000000 /dev/zero; echo end"}, Stdout: first(cancel)})
	var out bytes.Buffer
	var from int64
	r, err := c.Join(t.Context(), sandbox.Joining{ID: "big", Stdout: &out, Joined: func(o, _ int64) { from = o }})
	const total = 6 + 3_000_000 + 4
	if err != nil || !r.OK() || from+int64(out.Len()) != total || !strings.HasSuffix(out.String(), "\x00end\n") {
		t.Errorf("got %+v, %v: from %d and %d bytes, want %d in all", r, err, from, out.Len(), total)
	}
}

func TestKillByID(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	c := b.Shell("agent")
	done := make(chan sandbox.Result, 1)
	begun := make(chan struct{})
	go func() {
		r, _ := c.Exec(t.Context(), sandbox.Command{ID: "x", Argv: []string{"sh", "-c", "echo begun; setsid sleep 7006 & wait"}, Stdout: first(func() { close(begun) })})
		done <- r
	}()
	<-begun
	if err := c.Kill(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if r := <-done; !r.Killed || r.Signal != syscall.SIGKILL {
		t.Errorf("got %+v", r)
	}
	if running(t, b, "sleep 7006") {
		t.Error("a child in a session of its own outlived Kill")
	}
	if err := c.Kill(t.Context(), "y"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("killing nobody: %v", err)
	}
}

func TestOnlyAGradingSessionReadsAndSweeps(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	ctx, agent := t.Context(), b.Shell("agent")
	if _, err := agent.Exec(ctx, sandbox.Command{Argv: []string{"true"}, Sweep: true}); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("an agent sweeps: %v, want ErrDenied", err)
	}
	if _, err := agent.Read(ctx, "/etc/passwd", 1000); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("an agent reads as sandboxd: %v, want ErrDenied", err)
	}
	run(t, agent, "(setsid sleep 7401 >/dev/null 2>&1 &)")
	testlevel.Eventually(t, "the agent's daemon runs", func() bool { return running(t, b, "sleep 7401") })
	grader := b.ShellOf(host.Session{ID: "verifier", Grading: true})
	r, err := grader.Exec(ctx, sandbox.Command{
		Argv: []string{"sh", "-c", "(setsid sh -c '(setsid sh -c \"touch /tmp/up; exec sleep 7402\" &)' >/dev/null 2>&1 &); until [ -e /tmp/up ]; do sleep 0.01; done; sleep 0.5"}, Sweep: true,
	})
	if err != nil || !r.OK() || !strings.Contains(strings.Join(r.Swept, "; "), "sleep 7402") {
		t.Errorf("swept: %+v, %v; want the daemon", r, err)
	}
	if !running(t, b, "sleep 7401") || running(t, b, "sleep 7402") {
		t.Error("what was there before must stay, what is new must not")
	}
}

// What a command was to write comes with its end: read after the sweep, and only
// if it was not there before.
func TestWhatACommandWroteComesWithItsEnd(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	grader, ctx := b.ShellOf(host.Session{ID: "verifier", Grading: true}), t.Context()
	command := sandbox.Command{
		Argv: []string{"sh", "-c", `mkdir -p /tmp/r; ln -s /etc/passwd /tmp/r/link; echo 12345 > /tmp/r/long; echo 1 > /tmp/r/one
(setsid sh -c 'while :; do echo 2 > /tmp/r/one; done' >/dev/null 2>&1 &); until [ "$(cat /tmp/r/one)" = 2 ]; do :; done`},
		Sweep: true, Unwritten: true,
		Read: []sandbox.Reading{{Path: "/tmp/r/one", Limit: 5}, {Path: "/tmp/r/none", Limit: 5}, {Path: "/tmp/r/long", Limit: 5}, {Path: "/tmp/r/link", Limit: 5}},
	}
	r, err := grader.Exec(ctx, command)
	if err != nil || len(r.Read) != 4 || len(r.Swept) == 0 {
		t.Fatalf("got %+v, %v; want four answers and the daemon swept", r, err)
	}
	if one := r.Read[0]; one.Err != nil || string(one.Data) != "2\n" && len(one.Data) > 0 { // killed between truncating and writing
		t.Errorf("got %q, %v; want what the daemon wrote last", one.Data, one.Err)
	}
	for i, want := range []error{sandbox.ErrNotFound, sandbox.ErrTooLarge, sandbox.ErrUnsafe} {
		if got := r.Read[i+1]; !errors.Is(got.Err, want) || got.Data != nil {
			t.Errorf("%s: got %q, %v; want %v", command.Read[i+1].Path, got.Data, got.Err, want)
		}
	}
	command.Argv = []string{"touch", "/tmp/ran"}
	if _, err = grader.Exec(ctx, command); !errors.Is(err, sandbox.ErrExists) {
		t.Errorf("with a file that is there already: %v, want ErrExists", err)
	}
	if _, err = grader.Stat(ctx, "/tmp/ran"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("the command ran all the same: %v", err)
	}
	command.Unwritten = false
	if r, err = grader.Exec(ctx, command); err != nil || !r.OK() || r.Read[0].Err != nil {
		t.Errorf("got %+v, %v; want a file from before read again", r, err)
	}
	command.Read[0].Limit = 16 << 20
	if _, err = grader.Exec(ctx, command); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("limits of more than an answer holds: %v, want ErrInvalid", err)
	}
	if _, err = b.Shell("agent").Exec(ctx, sandbox.Command{Argv: []string{"true"}, Read: command.Read[1:]}); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("in a session that does not grade: %v, want ErrDenied", err)
	}
}

// raw is a client of generated code alone, as one in another language is.
func raw(t *testing.T, b *sandboxtest.Box) pb.SandboxShellClient {
	t.Helper()
	c, err := b.Attach(t.Context(), host.Session{ID: "raw"})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := stream.Client(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewSandboxShellClient(conn)
}

// A client in another language cancels a call and knows nothing of Signal.
func TestPlainCancelKillsTheTree(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	st, err := raw(t, b).Exec(ctx)
	if err != nil {
		t.Fatal(err)
	}
	argv := [][]byte{[]byte("sh"), []byte("-c"), []byte("setsid sleep 7301 & echo up; sleep 7302")}
	if err = st.Send(&pb.ExecRequest{Is: &pb.ExecRequest_Start{Start: &pb.ExecStart{Argv: argv}}}); err != nil {
		t.Fatal(err)
	}
	if m, err := st.Recv(); err != nil || string(m.GetStdout()) != "up\n" {
		t.Fatalf("got %v, %v", m, err)
	}
	cancel()
	testlevel.Eventually(t, "the tree is dead", func() bool { return !running(t, b, "sleep 730") })
}

// Half-closing the call is the end of standard input, too.
func TestHalfCloseEndsStandardInput(t *testing.T) {
	t.Parallel()
	st, err := raw(t, sandboxtest.Start(t, sandboxtest.Options{})).Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*pb.ExecRequest{
		{Is: &pb.ExecRequest_Start{Start: &pb.ExecStart{Argv: [][]byte{[]byte("cat")}, Stdin: true}}},
		{Is: &pb.ExecRequest_Stdin{Stdin: []byte("text")}},
	} {
		if err = st.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if err = st.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var out string
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			t.Fatal("no exit status")
		}
		if err != nil {
			t.Fatal(err)
		}
		out += string(m.GetStdout())
		if e := m.GetExit(); e != nil {
			if e.GetCode() != 0 || out != "text" {
				t.Errorf("got %v and %q", e, out)
			}
			return
		}
	}
}
