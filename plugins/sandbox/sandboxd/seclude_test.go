package sandboxd_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

// reach tries, until it is killed, to reach the verifier's folders and processes:
// by their paths, by making other folders in their place, and through /proc. What
// it is given as an argument are the folders to exchange. It prints what it got.
func reach(exchange []string) error {
	runtime.LockOSThread() // for ptrace
	fmt.Fprintln(os.Stdout, "up")
	got := loot{}
	for turn := 0; ; time.Sleep(time.Millisecond) { // until it is killed
		forge("")
		for _, dir := range exchange {
			if err := os.Rename(dir, fmt.Sprintf("%s.%d", dir, turn%3)); err == nil { // fails while there is one of that name
				turn++
				forge("")
			}
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
		folders, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			return err
		}
		for _, p := range folders {
			if line, err := os.ReadFile(p + "/cmdline"); err == nil && bytes.Contains(line, []byte("judged")) {
				got.from(p)
			}
		}
	}
}

// loot is what reach got, and has printed.
type loot map[string]bool

func (l loot) say(what string) {
	if !l[what] {
		l[what] = true
		fmt.Fprintln(os.Stdout, "+"+what)
	}
}

// from tries everything on a process of the tests, given its folder in /proc.
func (l loot) from(p string) {
	pid := 0
	_, _ = fmt.Sscan(filepath.Base(p), &pid)
	for _, dir := range []string{"root", "cwd", "task/" + filepath.Base(p) + "/root"} {
		forge(p + "/" + dir)
		if _, err := os.Readlink(p + "/" + dir); err == nil {
			l.say(dir)
		}
	}
	if !l["ptrace"] && unix.PtraceSeize(pid) == nil {
		l.say("ptrace")
		var status unix.WaitStatus
		_ = unix.PtraceInterrupt(pid)
		_, _ = unix.Wait4(pid, &status, unix.WALL, nil)
		_ = unix.PtraceDetach(pid)
	}
	if f, err := os.Open(p + "/ns/mnt"); err == nil {
		l.say("namespace")
		_ = f.Close()
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	if unix.Setns(fd, unix.CLONE_NEWNS) == nil {
		l.say("setns")
	}
	if got, err := unix.PidfdGetfd(fd, 0, 0); err == nil {
		l.say("descriptor")
		_ = unix.Close(got)
	}
}

// forge writes what the tests read, and the reward.
func forge(top string) {
	_ = os.MkdirAll(top+"/tests", 0o777)         //nolint:gosec // an attack
	_ = os.MkdirAll(top+"/logs/verifier", 0o777) //nolint:gosec // an attack
	for _, name := range []string{"/tests/answer", "/logs/verifier/reward.txt"} {
		_ = os.WriteFile(top+name, []byte("forged\n"), 0o666) //nolint:gosec // an attack
	}
}

// dropped becomes another user, if there is another, and waits as that.
func dropped(args []string) error {
	if err := unix.Setresuid(1000, 1000, 1000); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	p := sandboxtest.Program("hold", args...)
	return unix.Exec("/proc/self/exe", append(p, "judged"), os.Environ())
}

// A process that the agent left reaches neither the tests nor the verdict, also if
// it is root, takes any other user id, or exchanges the folders. It reaches both if
// they are not secluded.
func TestWhatTheAgentLeftDoesNotReachSecludedFolders(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		secluded bool
		without  []string
		reached  bool
	}{
		{"not secluded", false, nil, true},
		{"in a namespace alone", true, []string{"holding"}, true},
		{"secluded", true, nil, false},
	} {
		for place, o := range places() {
			t.Run(tt.name+", "+place, func(t *testing.T) {
				t.Parallel()
				o.Without = tt.without
				b := sandboxtest.Start(t, o)
				if !b.Hello.Secludes {
					t.Fatalf("it does not seclude: %+v", b.Hello)
				}
				got, reward := judged(t, b, tt.secluded)
				if !tt.reached {
					notReached(t, b, got, reward)
				} else if !strings.Contains(got, "+root") || !strings.Contains(got, "+ptrace") || reward != "forged" {
					t.Errorf("without the guard, the reward is %q, and it got:\n%s: is the guard still needed?", reward, got)
				}
			})
		}
	}
}

// notReached checks that what was left got nothing, and is said to have tried.
func notReached(t *testing.T, b *sandboxtest.Box, got, reward string) {
	t.Helper()
	if strings.Contains(got, "+") || reward != "honest" {
		t.Errorf("the reward is %q, and what was left got:\n%s", reward, got)
	}
	files, _, err := b.Disturbed(t.Context())
	if err != nil || !strings.Contains(strings.Join(files, "\n"), "/tests") {
		t.Errorf("disturbed: %q, %v; want the forged files of the sandbox", files, err)
	}
}

// judged runs tests beside processes that reach for them. It returns what these
// printed, and the reward.
func judged(t *testing.T, b *sandboxtest.Box, secluded bool) (got, reward string) {
	t.Helper()
	ctx := t.Context()
	agent := b.Shell("agent")
	for range 8 { // the threads of sandboxd have started commands before
		if err := serves(t, agent); err != nil {
			t.Fatal(err)
		}
	}
	out := &output{}
	var left sync.WaitGroup
	users := []string{"0", "1000", "65533"}
	if b.Hello.OneID {
		users = users[:1]
	}
	for _, user := range users {
		left.Go(func() {
			_, err := agent.Exec(ctx, sandbox.Command{ID: "reach-" + user, Argv: sandboxtest.Program("reach", "/tests", "/logs"), User: user, Stdout: out})
			if err != nil {
				t.Error(err)
			}
		})
	}
	defer left.Wait()
	defer func() {
		for _, user := range users {
			if err := agent.Kill(ctx, "reach-"+user); err != nil {
				t.Error(err)
			}
		}
	}()
	testlevel.Eventually(t, "what the agent leaves has started", func() bool { return strings.Count(out.String(), "up\n") >= len(users) })
	folders := []string{"/logs/verifier", "/tests"}
	for end := time.Now().Add(time.Minute); ; { // the agent may put something there in between
		_, err := b.Fresh(ctx, "", 0o777, folders...)
		if err == nil && secluded {
			err = b.Seclude(ctx, folders...)
		}
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	grader := b.ShellOf(host.Session{ID: "grader", Grading: true})
	const script = `cd /tests && echo honest >answer && i=0 && while [ $i -lt 20 ]; do sleep 0.05; i=$((i+1)); done; cat answer >/logs/verifier/reward.txt`
	held := make(chan error, 1)
	go func() {
		_, err := grader.Exec(ctx, sandbox.Command{Argv: sandboxtest.Program("dropped", "1"), Timeout: time.Minute})
		held <- err
	}()
	r, err := grader.Exec(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", script, "judged"}, Timeout: time.Minute})
	if err = errors.Join(err, <-held); err != nil {
		t.Fatalf("tests: %+v, %v", r, err)
	}
	text, _, err := b.Read(ctx, "/logs/verifier/reward.txt", 100)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), strings.TrimSpace(string(text))
}

// output is what several commands print.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
