package sandboxd_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/archive"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

// Each test of this file is a row of the table of what root of a sandbox may
// try. It first shows the damage with the guard off.

// attack runs a program of attacker_test.go as the sandbox's root.
func attack(t *testing.T, c *sandbox.Client, args ...string) (out string, err error) {
	t.Helper()
	var b, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, err = c.Exec(ctx, sandbox.Command{Argv: sandboxtest.Program(args[0], args[1:]...), Stdout: &b, Stderr: &errs})
	if errs.Len() > 0 {
		t.Errorf("%q said %s", args, errs.String())
	}
	return b.String(), err
}

// serves says whether sandboxd still runs commands.
func serves(t *testing.T, c *sandbox.Client) error {
	t.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := c.Exec(ctx, sandbox.Command{Argv: []string{"echo", "ok"}, Stdout: &out})
	if err == nil && (!r.OK() || out.String() != "ok\n") {
		err = errors.New("a command said " + out.String())
	}
	return err
}

// dies waits for the end of a PID 1 that lacks a guard.
func dies(t *testing.T, b *sandboxtest.Box) {
	t.Helper()
	testlevel.Eventually(t, "PID 1, which lacks a guard, ends: if it does not, is the guard still needed?", func() bool { return !b.Alive() })
}

// places are the kinds of user namespace.
func places() map[string]sandboxtest.Options {
	return map[string]sandboxtest.Options{"one id": {OneID: true}, "many ids": {ManyIDs: true}}
}

func TestSignalsDoNotEndPID1(t *testing.T) {
	t.Parallel()
	t.Run("without the guard", func(t *testing.T) {
		t.Parallel()
		b := sandboxtest.Start(t, sandboxtest.Options{Without: []string{"deafness"}})
		_, _ = attack(t, b.Shell("agent"), "queued")
		dies(t, b)
	})
	for name, o := range places() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := sandboxtest.Start(t, o)
			c := b.Shell("agent")
			for _, how := range []string{"signals", "queued", "signals"} {
				if _, err := attack(t, c, how); err != nil {
					t.Errorf("%s: %v", how, err)
				}
			}
			if err := serves(t, c); err != nil {
				t.Errorf("after all signals: %v", err)
			}
		})
	}
}

func TestForkBombDoesNotEndPID1(t *testing.T) {
	t.Parallel()
	t.Run("without the guard", func(t *testing.T) {
		t.Parallel()
		b, c := bombed(t, "reserve")
		for range 20 {
			if answers := crowd(t, b, c); !b.Alive() {
				return
			} else if answers[sandbox.ErrGone] > 0 {
				break
			}
		}
		dies(t, b)
	})
	t.Run("guarded", func(t *testing.T) {
		t.Parallel()
		b, c := bombed(t)
		for range 3 {
			answers := crowd(t, b, c)
			if !b.Alive() || answers[sandbox.ErrNoRoom] == 0 || answers[sandbox.ErrGone]+answers[context.DeadlineExceeded] > 0 {
				t.Errorf("alive %v, answers %v; want clean refusals", b.Alive(), answers)
			}
		}
		if _, err := b.Quiesce(t.Context()); err != nil {
			t.Errorf("quiesce: %v", err)
		}
		if err := serves(t, c); err != nil {
			t.Errorf("after the bomb: %v", err)
		}
	})
}

// bombed is a sandbox that is full of processes.
func bombed(t *testing.T, without ...string) (*sandboxtest.Box, *sandbox.Client) {
	t.Helper()
	// One id, since the limit is counted by user: with an id of its own PID 1
	// would not even meet it.
	b := sandboxtest.Start(t, sandboxtest.Options{OneID: true, Processes: 70, Without: without})
	c := b.Shell("agent")
	full := make(chan struct{})
	var once sync.Once
	go func() {
		_, _ = c.Exec(t.Context(), sandbox.Command{
			Argv: sandboxtest.Program("bomb", "99s"), Stdout: writer(func([]byte) { once.Do(func() { close(full) }) }),
		})
	}()
	select {
	case <-full:
	case <-b.Lost(): // PID 1 did not live to say so
	case <-time.After(time.Minute):
		t.Fatal("the bomb did not reach the limit")
	}
	return b, c
}

// crowd asks for many things at once and counts how that fails; nil is success.
func crowd(t *testing.T, b *sandboxtest.Box, c *sandbox.Client) map[error]int {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := map[error]int{}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 60 {
		wg.Go(func() {
			_, err := c.Exec(ctx, sandbox.Command{Argv: []string{"/bin/true"}})
			var kind error
			for _, k := range []error{sandbox.ErrNoRoom, sandbox.ErrGone, context.DeadlineExceeded} {
				if errors.Is(err, k) {
					kind = k
				}
			}
			if kind == nil && err != nil {
				t.Errorf("at the limit a command fails with %v", err)
			}
			_ = c.Download(ctx, "/bin/sh", &bytes.Buffer{}, archive.Limits{})
			_, _ = b.Processes(ctx)
			mu.Lock()
			defer mu.Unlock()
			answers[kind]++
		})
	}
	wg.Wait()
	return answers
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

func TestNobodyLooksIntoPID1(t *testing.T) {
	t.Parallel()
	t.Run("without the guard", func(t *testing.T) {
		t.Parallel()
		b := sandboxtest.Start(t, sandboxtest.Options{Plain: true, Writable: true, Without: []string{"secrecy"}})
		out, err := attack(t, b.Shell("agent"), "intrude")
		if err != nil {
			t.Fatal(err)
		}
		got := succeeded(out)
		for _, want := range []string{"ptrace", "open /proc/1/mem", "open /proc/1/environ", "write /berth/x", "mount over /berth"} {
			if !slices.Contains(got, want) {
				t.Errorf("%q did not succeed: is the guard still needed?\n%s", want, out)
			}
		}
	})
	for name, o := range places() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := sandboxtest.Start(t, o)
			c := b.Shell("agent")
			out, err := attack(t, c, "intrude")
			if got := succeeded(out); err != nil || len(got) > 0 || !strings.Contains(out, "- ptrace") {
				t.Errorf("succeeded: %q, %v\n%s", got, err, out)
			}
			if err := serves(t, c); err != nil {
				t.Error(err)
			}
		})
	}
}

// A program of a guarded session, such as a browser with a protocol on its pipes, is
// reached by nobody, and one of another session by whoever is root beside it.
func TestNobodyLooksIntoAGuardedProgram(t *testing.T) {
	t.Parallel()
	for name, o := range places() {
		for _, user := range []string{"0", "1000"} {
			if o.OneID && user != "0" {
				continue // there is only root
			}
			t.Run(name+" "+user, func(t *testing.T) {
				t.Parallel()
				b := sandboxtest.Start(t, o)
				for _, guarded := range []bool{false, true} {
					out, heard := peekAt(t, b, host.Session{ID: fmt.Sprint("surface-", guarded), User: user, Guarded: guarded}, user)
					got := succeeded(out)
					switch {
					case !guarded && (user == "0" && heard != "forged" || !slices.Contains(got, "open mem as its user") || !slices.Contains(got, "pidfd_getfd as its user")):
						t.Errorf("without the guard it heard %q, and these succeeded: %q: is the guard still needed?\n%s", heard, got, out)
					case guarded && (heard != "ours" || len(got) > 0 || !strings.Contains(out, "- ptrace as its user")):
						t.Errorf("it heard %q, and these succeeded: %q\n%s", heard, got, out)
					}
				}
			})
		}
	}
}

// peekAt attacks a program of a session that waits for a line, and returns what the
// attacker says, and the line. If nothing was forged, it writes the line itself.
func peekAt(t *testing.T, b *sandboxtest.Box, who host.Session, user string) (out, heard string) {
	t.Helper()
	c := b.ShellOf(who)
	in, ours := io.Pipe()
	said, theirs := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", `echo $$; read line; echo "$line"; cat >/dev/null`}, Stdin: in, Stdout: theirs})
		ended <- errors.Join(err, theirs.Close())
	}()
	lines := bufio.NewScanner(said)
	lines.Scan()
	out, err := attack(t, b.Shell("agent"), "peek", lines.Text(), user)
	if err != nil {
		t.Error(err)
	}
	_, _ = ours.Write([]byte("ours\n")) // it may have heard another line
	lines.Scan()
	heard = lines.Text()
	_ = ours.Close()
	if err = <-ended; err != nil {
		t.Error(err)
	}
	return out, heard
}

// Where sandboxd lacks the capability that guards, it says so.
func TestAMissingGuardIsAFinding(t *testing.T) {
	t.Parallel()
	for _, lacks := range []bool{false, true} {
		b := sandboxtest.Start(t, sandboxtest.Options{ManyIDs: true, NoOwnCap: lacks})
		said := strings.Join(b.Hello.Findings, "; ")
		if strings.Contains(said, "look into the programs of a surface") != lacks {
			t.Errorf("lacks it: %v; findings %q", lacks, said)
		}
		if out, heard := peekAt(t, b, host.Session{ID: "surface", Guarded: true}, "0"); (heard == "forged") != lacks {
			t.Errorf("lacks it: %v; heard %q\n%s", lacks, heard, out)
		}
	}
}

func TestNoSocketIsLeft(t *testing.T) {
	t.Parallel()
	t.Run("without the guard", func(t *testing.T) {
		t.Parallel()
		// A listener that stays, and whose owner is busy.
		b := sandboxtest.Start(t, sandboxtest.Options{Beside: func(folder string) {
			path := filepath.Join(folder, "open")
			l, err := net.Listen("unix", path) //nolint:noctx // ends with the test
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			if err := os.Chmod(path, 0o666); err != nil {
				t.Fatal(err)
			}
		}})
		out, err := attack(t, b.Shell("agent"), "socket", "open")
		if got := succeeded(out); err != nil || !slices.Equal(got, []string{"connect", "fill the queue"}) {
			t.Errorf("an open listener cannot be flooded any more: %q, %v", out, err)
		}
	})
	t.Run("guarded", func(t *testing.T) {
		t.Parallel()
		b := sandboxtest.Start(t, sandboxtest.Options{})
		out, err := attack(t, b.Shell("agent"), "socket", "sock")
		if got := succeeded(out); err != nil || len(got) > 0 || !strings.Contains(out, "no such file") {
			t.Errorf("succeeded: %q, %v", got, err)
		}
		if _, err := b.Attach(t.Context(), host.Session{ID: "other"}); err != nil {
			t.Errorf("attach after that: %v", err)
		}
	})
}

func TestLinksToPID1AreNotFollowed(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	c, ctx := b.Shell("agent"), t.Context()
	var out bytes.Buffer
	if r, err := c.Exec(ctx, sandbox.Command{Argv: []string{"sh", "-c", `mkdir /tmp/l; cd /tmp/l
		ln -s /proc/self/mem own; for f in mem environ; do ln -s /proc/1/$f $f; done; ln -s /proc/1 dir; ln -s mem second`}, Stderr: &out}); err != nil || !r.OK() {
		t.Fatalf("%+v, %v, %s", r, err, out.String())
	}
	// Who writes through such a link opens the memory of whoever follows it.
	if said, err := attack(t, c, "naive", "/tmp/l/own"); err != nil || len(succeeded(said)) != 1 {
		t.Errorf("a naive write: %q, %v", said, err)
	}
	for _, name := range []string{"/tmp/l/mem", "/tmp/l/second"} {
		if err := c.WriteFile(ctx, name, []byte("x"), sandbox.FileOptions{}); err != nil {
			t.Errorf("a file over the link %s: %v, want the link replaced", name, err)
		}
		if info, err := c.Lstat(ctx, name); err != nil || info.Kind != sandbox.File {
			t.Errorf("%s is now %+v, %v", name, info, err)
		}
	}
	for _, name := range []string{"/tmp/l/dir/mem", "/tmp/l/dir/new/x", "/proc/1/mem", "/proc/sys/kernel/hostname"} {
		if err := c.WriteFile(ctx, name, []byte("x"), sandbox.FileOptions{}); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	for _, name := range []string{"/tmp/l/environ", "/tmp/l/dir/environ", "/proc/1/environ", "/tmp/l/dir/mem"} {
		if err := c.Download(ctx, name, &bytes.Buffer{}, archive.Limits{}); err == nil {
			t.Errorf("%s was downloaded", name)
		}
	}
	if err := serves(t, c); err != nil {
		t.Error(err)
	}
}

// Root can mark PID 1 as the first to be killed. Renew takes that back.
func TestOutOfMemoryScoreIsReset(t *testing.T) {
	t.Parallel()
	for name, guarded := range map[string]bool{"without the guard": false, "guarded": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lease, until := 6*time.Second, "[ $v != 1000 ]"
			if !guarded {
				lease, until = time.Hour, "[ $i = 5 ]" // so it is not renewed meanwhile
			}
			b := sandboxtest.Start(t, sandboxtest.Options{Lease: lease})
			c := b.Shell("agent")
			var out bytes.Buffer
			// PID 1 has the score of its child until it has seen that the child was started.
			script := `cat /proc/self/oom_score_adj
				until read v < /proc/1/oom_score_adj && [ $v != 500 ]; do sleep 0.01; done
				echo 1000 > /proc/1/oom_score_adj; read v < /proc/1/oom_score_adj; echo $v
				i=0; until ` + until + ` || [ $i = 600 ]; do sleep 0.1; i=$((i+1)); read v < /proc/1/oom_score_adj; done; echo $v`
			r, err := c.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", script}, Stdout: &out})
			if err != nil || !r.OK() {
				t.Fatalf("%+v, %v", r, err)
			}
			f := strings.Fields(out.String())
			if len(f) != 3 || f[0] != "500" || f[1] != "1000" || (f[2] == "1000") == guarded {
				t.Errorf("of a command, of PID 1 after the attack, and later: %q", f)
			}
		})
	}
}

// What stands at the names that PID 1 needs must not make it wait or fall.
func TestTrapsInTheFileSystem(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	c := b.Shell("agent")
	script := func(s string) {
		t.Helper()
		var errs bytes.Buffer
		if r, err := c.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", s}, Stderr: &errs}); err != nil || !r.OK() {
			t.Fatalf("%s: %+v, %v, %s", s, r, err, errs.String())
		}
	}
	for _, trap := range []string{
		"rm /etc/passwd; mkfifo /etc/passwd",
		"rm /etc/passwd; ln -s /proc/1/mem /etc/passwd",
		"rm /etc/passwd; mkdir /etc/passwd",
		"rmdir /etc/passwd; head -c 3000000 /dev/zero | tr '\\0' : > /etc/passwd",
		"rm /etc/group; ln -s group /etc/group",
		"rm /dev/ptmx; mkfifo /dev/ptmx",
		"mkdir /tmp/path; mkfifo /tmp/path/echo",
	} {
		script(trap)
		if err := serves(t, c); err != nil {
			t.Errorf("%s: %v", trap, err)
		}
		if _, err := c.Exec(t.Context(), sandbox.Command{Argv: []string{"true"}, User: "alice"}); !errors.Is(err, sandbox.ErrNotFound) && !strings.Contains(trap, "/tmp/path") && strings.Contains(trap, "passwd") {
			t.Errorf("%s: a user by name: %v, want ErrNotFound", trap, err)
		}
	}
	if _, err := c.Exec(t.Context(), sandbox.Command{Argv: []string{"echo"}, Env: []string{"PATH=/tmp/path"}}); !errors.Is(err, sandbox.ErrDenied) && !errors.Is(err, sandbox.ErrNoProgram) {
		t.Errorf("a pipe in PATH: %v", err)
	}
	term, err := c.Terminal(t.Context(), sandbox.TerminalSpec{ID: "t", Argv: []string{"tty"}})
	if err != nil {
		t.Fatalf("a terminal with a pipe as /dev/ptmx: %v", err)
	}
	_ = term.Close()
}

// Whoever has many processes with long command lines must not make the answers
// too large for a message.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	c := b.Shell("agent")
	script := `long=$(head -c 100000 /dev/zero | tr '\0' x); i=0; while [ $i -lt 300 ]; do sleep 999 "$long" 2>/dev/null & sh -c 'exec sleep 999' "$long" & i=$((i+1)); done; true`
	if r, err := c.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", script}}); err != nil || !r.OK() {
		t.Fatalf("%+v, %v", r, err)
	}
	ps, err := b.Processes(t.Context())
	if err != nil || len(ps.List) < 300 {
		t.Fatalf("%d processes, %v", len(ps.List), err)
	}
	for _, p := range ps.List {
		if n := len(strings.Join(p.Argv(), "\x00")); n > 1024 {
			t.Errorf("process %d has %d bytes of arguments", p.PID, n)
		}
	}
	killed, err := b.Quiesce(t.Context())
	if err != nil || len(killed) < 300 {
		t.Errorf("%d killed, %v", len(killed), err)
	}
}
