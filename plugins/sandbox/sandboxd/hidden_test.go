package sandboxd_test

import (
	"slices"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

// background starts a program that says "up" when it has begun, and that its
// session leaves behind.
func background(t *testing.T, b *sandboxtest.Box, argv []string) {
	t.Helper()
	c := b.Shell("agent")
	script := `setsid "$@" > /tmp/said 2>&1 < /dev/null & until [ -s /tmp/said ]; do :; done`
	if r, err := c.Exec(t.Context(), sandbox.Command{Argv: append([]string{"sh", "-c", script, "sh"}, argv...)}); err != nil || !r.OK() {
		t.Fatalf("%+v, %v", r, err)
	}
}

// settle ends the agent, and returns what is left of it.
func settle(t *testing.T, b *sandboxtest.Box) []host.Process {
	t.Helper()
	s, err := b.Settle(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return host.Processes{List: s.Left}.Since(nil)
}

// A process whose first thread has ended is seen, stopped and killed like any
// other. (That the kernel shows it as a zombie is in the test of package proc.)
func TestAProcessWithoutItsFirstThreadIsSeen(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	before, err := b.Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	background(t, b, sandboxtest.Program("headless"))
	// It takes a moment until its first thread has ended.
	named := func(p host.Process) bool {
		return slices.Contains(p.Argv(), "headless") && p.State != "Z" && p.State != "X"
	}
	for range 100 {
		if left := settle(t, b); len(left) != 1 || !named(left[0]) {
			t.Fatalf("left are %+v, want the one process", left)
		}
		time.Sleep(time.Millisecond) // the looks are spread over the end of the thread, which nothing tells
	}
	if f, failed := b.Freeze(t.Context()); failed != nil || f.Stopped != 1 {
		t.Fatalf("freeze: %+v, %v", f, failed)
	}
	if ps, failed := b.Processes(t.Context()); failed != nil || len(ps.List) != 1 || ps.List[0].State != "T" {
		t.Errorf("frozen: %+v, %v", ps.List, failed)
	}
	if err = b.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	killed, err := b.Sweep(t.Context(), before.Keys())
	if err != nil || len(killed) != 1 || !named(killed[0]) {
		t.Errorf("swept %+v, %v", killed, err)
	}
	if left := settle(t, b); len(left) > 0 {
		t.Errorf("left after the sweep: %+v", left)
	}
}

// A process that has itself continued cannot be kept from it, but it is seen, also
// if it is stopped each time that somebody looks.
func TestAProcessThatContinuesItselfIsSeen(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	c := b.Shell("agent")
	background(t, b, sandboxtest.Program("waker"))
	background(t, b, []string{"sh", "-c", "echo up; while :; do :; done"})
	if f, err := b.Freeze(t.Context()); err != nil || len(f.Moved) > 0 {
		t.Fatalf("freeze: %+v, %v", f, err)
	}
	size := func() int64 {
		info, err := c.Stat(t.Context(), "/tmp/woken")
		if err != nil {
			t.Fatal(err)
		}
		return info.Bytes
	}
	before := size()
	testlevel.Eventually(t, "it writes while it is frozen", func() bool { return size() > before })
	f, err := b.Freeze(t.Context())
	if err != nil || len(f.Moved) != 1 || !slices.Contains(f.Moved[0].Argv(), "waker") {
		t.Errorf("moved: %+v, %v; want the one process", f.Moved, err)
	}
	if err = b.Thaw(t.Context()); err != nil {
		t.Error(err)
	}
	if f, err = b.Freeze(t.Context()); err != nil || len(f.Moved) > 0 {
		t.Errorf("after a thaw: %+v, %v", f.Moved, err)
	}
}

// A process that is ending runs no code any more, however long its end takes. It
// counts as gone; those that live beside it do not.
func TestAProcessThatIsEndingIsNotLeft(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	background(t, b, sandboxtest.Program("lingering"))
	ending := func() bool { // it has neither arguments nor memory any more, and its parent lives
		ps, err := b.Processes(t.Context())
		return err == nil && slices.ContainsFunc(ps.List, func(p host.Process) bool {
			return len(p.Argv()) == 0 && p.State != "Z" && slices.ContainsFunc(ps.List, func(q host.Process) bool { return q.PID == p.Parent && slices.Contains(q.Argv(), "lingering") })
		})
	}
	testlevel.Eventually(t, "the killed process is ending", ending)
	s, err := b.Settle(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	left := host.Processes{List: s.Left}.Since(nil)
	if len(left) != 1 || !slices.Contains(left[0].Argv(), "lingering") {
		t.Errorf("left are %+v, want the one that lives", left)
	}
	if _, err = b.Sweep(t.Context(), nil); err != nil {
		t.Error(err)
	}
	testlevel.Eventually(t, "it has ended", func() bool { return !ending() })
}

// Of processes that live too short to be seen one is seen nevertheless.
func TestAChainOfShortProcessesIsSeen(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	before, err := b.Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	background(t, b, sandboxtest.Program("chain"))
	// The damage: a list that is read while it goes on may not have it.
	testlevel.Eventually(t, "a list of processes lacks the chain: is the guard still needed?", func() bool {
		ps, failed := b.Processes(t.Context())
		return failed == nil && len(ps.Since(before.Keys())) == 0
	})
	for i := range 200 {
		if left := settle(t, b); len(left) == 0 || !slices.Contains(left[0].Argv(), "chain") {
			t.Fatalf("time %d: left are %+v, want the chain", i, left)
		}
	}
	killed, err := b.Sweep(t.Context(), before.Keys())
	if err != nil || len(killed) == 0 {
		t.Errorf("swept %+v, %v", killed, err)
	}
	if left := settle(t, b); len(left) > 0 {
		t.Errorf("left after the sweep: %+v", left)
	}
}

// A process that waits in vfork cannot be stopped. Its child can, and then it
// stands still, too.
func TestAProcessThatWaitsInVforkIsFrozen(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	background(t, b, sandboxtest.Program("vfork"))
	state := func() (all []string) {
		ps, err := b.Processes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range ps.List {
			all = append(all, p.State)
		}
		return all
	}
	testlevel.Eventually(t, "it waits in vfork", func() bool { return slices.Equal(state(), []string{"D", "S"}) })
	if f, err := b.Freeze(t.Context()); err != nil || f.Stopped != 2 {
		t.Fatalf("freeze: %+v, %v", f, err)
	}
	if now := state(); !slices.Equal(now, []string{"D", "T"}) {
		t.Errorf("frozen, the states are %q", now)
	}
	if err := b.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	testlevel.Eventually(t, "both go on", func() bool { return slices.Equal(state(), []string{"D", "S"}) })
}
