package faults

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

// These tests show what the tests of examples/faults do to a harness without
// protection. TestTasksThatGoWrongOnPurpose shows that Berth is not affected.

// unguarded grades in a sandbox in the simplest way: it runs the test, reads
// the reward with the language's own parser, and trusts the result. All of its
// trials share one sandbox.
type unguarded struct {
	test   *testing.T
	box    *sandboxtest.Box
	client *sandbox.Client
}

func newUnguarded(t *testing.T, o sandboxtest.Options) *unguarded {
	t.Helper()
	b := sandboxtest.Start(t, o)
	return &unguarded{test: t, box: b, client: b.Shell("grader")}
}

// put installs the test of a task of examples/faults.
func (u *unguarded) put(task string) {
	u.test.Helper()
	b, err := os.ReadFile(filepath.Join(tree(), "examples", "faults", "tasks", task, "tests", "test.sh"))
	if err == nil {
		err = u.client.WriteFile(u.test.Context(), "/tests/test.sh", b, sandbox.FileOptions{})
	}
	if err != nil {
		u.test.Fatal(err)
	}
}

func (u *unguarded) run(ctx context.Context, argv ...string) (sandbox.Result, error) {
	return u.client.Exec(ctx, sandbox.Command{Argv: argv})
}

// cutOff ends a test that takes too long as such a harness does: at a deadline
// it kills the process that it started. The deadline leaves the test enough
// time to do its damage, which left reports.
func (u *unguarded) cutOff(left func() bool) {
	u.test.Helper()
	for seconds := 1; seconds <= 64; seconds *= 2 {
		r, err := u.run(u.test.Context(), "timeout", "--foreground", "-s", "KILL", strconv.Itoa(seconds), "sh", "/tests/test.sh")
		if err != nil || r.OK() {
			u.test.Fatalf("a test with a deadline: %+v, %v", r, err)
		}
		if _, err = u.reward(); err == nil && left() {
			return
		}
		if _, err = u.box.Quiesce(u.test.Context()); err != nil {
			u.test.Fatal(err)
		}
	}
	u.test.Error("the test leaves nothing: it proves nothing")
}

// reward returns the reward that the test wrote.
func (u *unguarded) reward() (float64, error) {
	b, err := u.client.ReadFile(u.test.Context(), "/logs/verifier/reward.txt", 1<<10)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(string(b)), 64)
}

// runs returns the processes of the sandbox that run a program.
func (u *unguarded) runs(program string) (pids []int) {
	u.test.Helper()
	ps, err := u.box.Processes(u.test.Context())
	if err != nil {
		u.test.Fatal(err)
	}
	for i := range ps.List {
		if strings.HasPrefix(strings.Join(ps.List[i].Argv, " "), program) {
			pids = append(pids, ps.List[i].PID)
		}
	}
	return pids
}

func (u *unguarded) eventually(what string, done func() bool) {
	u.test.Helper()
	testlevel.Eventually(u.test, what, done)
}

// A test that hangs: without a deadline the harness waits for ever, and the
// test ignores requests to end. With a deadline the harness counts the reward
// of a test that never ended, and leaves its processes running.
func TestDamageATestThatHangs(t *testing.T) {
	t.Parallel()
	u := newUnguarded(t, sandboxtest.Options{})
	u.put("hang")
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	waits := make(chan error, 1)
	go func() {
		_, err := u.run(ctx, "sh", "/tests/test.sh")
		waits <- err
	}()
	u.eventually("the test hangs", func() bool { return len(u.runs("sleep 1000")) == 1 })
	pids := u.runs("sh /tests/test.sh")
	if len(pids) != 1 {
		t.Fatalf("processes of the test: %v", pids)
	}
	if r, err := u.run(t.Context(), "sh", "-c", "kill -TERM "+strconv.Itoa(pids[0])); err != nil || !r.OK() {
		t.Fatalf("%+v, %v", r, err)
	}
	select {
	case err := <-waits:
		t.Errorf("the test ended (%v): it proves nothing", err)
	case <-time.After(time.Second):
	}
	giveUp()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("given up on, the test ended with %v", err)
	}
	if _, err := u.box.Quiesce(t.Context()); err != nil {
		t.Fatal(err)
	}
	u.cutOff(func() bool { return len(u.runs("sleep 1000")) == 1 })
	if score, err := u.reward(); err != nil || score != 1 {
		t.Errorf("the reward of a test that never ended is %v, %v; want that it looks like a pass", score, err)
	}
}

// A test that forks for ever: the deadline kills only the first process, and
// the reward counts. If all trials share one limit on processes, as the trials
// of one user do, the next trial cannot start its test.
func TestDamageATestThatForksForEver(t *testing.T) {
	t.Parallel()
	// The sandbox has one id, because the kernel counts the limit by user. The
	// limit protects this machine: without it, the processes would use up those
	// of the whole machine.
	u := newUnguarded(t, sandboxtest.Options{OneID: true, Processes: 48})
	u.put("forks")
	u.cutOff(func() bool { return len(u.runs("perl")) > 10 })
	if score, err := u.reward(); err != nil || score != 1 {
		t.Errorf("the reward of a test that never ended is %v, %v; want that it looks like a pass", score, err)
	}
	u.eventually("the next trial cannot start", func() bool {
		_, err := u.run(t.Context(), "true")
		return errors.Is(err, sandbox.ErrNoRoom)
	})
}

// A trial that uses up the files, or the bytes, of a disk that all trials share: the
// next one can write nothing. TestATrialThatTakesAllLeavesItsNeighboursAndTheHostAlone
// in internal/e2e/engines shows the guard.
func TestDamageATrialThatTakesTheDiskOfAll(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]string{
		"inodes": "i=0; while : > shared/$i; do i=$((i + 1)); done",
		"bytes":  "dd if=/dev/zero of=shared/big bs=4096",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			if err := os.Mkdir(filepath.Join(p.dir, "shared"), 0o700); err != nil {
				t.Fatal(err)
			}
			p.write("script.sh", "("+take+") 2> /dev/null\n(cat script.sh > shared/neighbour) 2> said\necho $? > code\n")
			p.shepherd(ownMounts, []string{diskEnv + "=shared|1m,nr_inodes=64"}, "/bin/sh", "script.sh").wait().want(t, 0)
			if code, said := strings.TrimSpace(read(filepath.Join(p.dir, "code"))), read(filepath.Join(p.dir, "said")); code == "0" || !strings.Contains(said, "No space left") {
				t.Errorf("the neighbour ended with %s: %s; this proves nothing", code, said)
			}
		})
	}
}

// A reward of NaN: the parser accepts it, no comparison with it is true, the
// mean of all trials becomes NaN, and the results cannot be written as JSON.
func TestDamageARewardOfNaN(t *testing.T) {
	t.Parallel()
	u := newUnguarded(t, sandboxtest.Options{})
	u.put("nan")
	if r, err := u.run(t.Context(), "sh", "/tests/test.sh"); err != nil || !r.OK() {
		t.Fatalf("%+v, %v", r, err)
	}
	score, err := u.reward()
	if err != nil || score >= 1 || score < 1 {
		t.Errorf("the reward is %v, %v; want that it is taken, and neither passes nor fails", score, err)
	}
	if mean := (1 + 1 + score) / 3; !math.IsNaN(mean) {
		t.Errorf("the mean with two that passed is %v", mean)
	}
	if b, err := json.Marshal(map[string]float64{"passed": 1, "nan": score}); err == nil {
		t.Errorf("the results can be written: %s", b)
	}
}

// A test prints 1 GB, and no file may be larger than 32 MiB. A harness that
// keeps all output needs as much memory, fails to write its file and has no
// results. Berth, under the same limit, needs a bounded amount of both.
func TestATestThatPrintsAGigabyte(t *testing.T) {
	t.Parallel()
	const (
		file    = 32 << 20
		printed = 150_000_000 // by the test of the naive harness
	)
	limit := []string{fileEnv + "=" + strconv.Itoa(file)}
	p := newPlace(t)
	test := read(filepath.Join(tree(), "examples", "faults", "tasks", "flood", "tests", "test.sh"))
	p.write("flood.sh", strings.NewReplacer("1000000000", strconv.Itoa(printed), "/logs/verifier/", "").Replace(test))
	s := p.naively(limit, "print", "flood.sh")
	<-s.ended
	if _, err := os.Stat(filepath.Join(p.dir, "results.txt")); err == nil || s.result.Code == 0 || s.result.Peak < printed {
		t.Errorf("exit code %d, %d bytes at its peak, the results are there: %v; the test proves nothing\n%s", s.result.Code, s.result.Peak, err == nil, s.result.stderr)
	}

	p = newPlace(t)
	p.task("tiny", "", solveTiny, testTiny)
	if err := os.CopyFS(filepath.Join(p.dir, "tasks", "flood"), os.DirFS(filepath.Join(tree(), "examples", "faults", "tasks", "flood"))); err != nil {
		t.Fatal(err)
	}
	p.experiment("matrix {\n    agent = [agent.oracle]\n  }", "")
	r := p.start(limit, "run", ".", "--no-live").wait().want(t, 0)
	if r.Peak == 0 || r.Peak > printed {
		t.Errorf("berth, or a process of it, had %d bytes at its peak", r.Peak)
	}
	t.Logf("at their peak: %d MiB without guards, %d MiB with", s.result.Peak>>20, r.Peak>>20)
	show := p.settled(p.run())
	for i := range show.Trials {
		if a := show.Trials[i].Attempts; len(a) != 1 || a[0].Outcome != record.Passed || e2etest.Result(t, a[0].Dir).Integrity != record.Checked {
			t.Errorf("%s: %+v, want a pass that is checked", show.Trials[i].Task, a)
		}
	}
	p.floodIsCut(show)
	p.clean()
}

// limitFiles gives this process, and all that it starts, the limit of fileEnv.
func limitFiles(bytes string) error {
	if bytes == "" {
		return nil
	}
	n, err := strconv.ParseUint(bytes, 10, 63)
	if err == nil {
		err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: n})
	}
	return err
}
