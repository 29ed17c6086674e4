package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
)

// oneFile is a format whose tasks are the content of the file "task".
type oneFile struct{ loads int }

func (*oneFile) Name() string       { return "one-file" }
func (*oneFile) Detect(string) bool { return true }

func (f *oneFile) Load(_ context.Context, dir string, _ task.Options) (*task.Task, []task.Problem, error) {
	f.loads++
	b, err := os.ReadFile(filepath.Join(dir, "task"))
	if err != nil {
		return nil, nil, err
	}
	if string(b) == "broken" {
		return nil, []task.Problem{{Severity: task.Error, Summary: "it is broken"}}, nil
	}
	return &task.Task{Name: "t", Digest: "sha256:" + string(b), Format: "one-file", Dir: dir}, nil, nil
}

// A run that is interrupted while a task is read says nothing about the task:
// task_invalid would never be tried again.
func TestAnInterruptedReadIsNotAnInvalidTask(t *testing.T) {
	t.Parallel()
	planned := &plan.Task{Name: "t", Task: &task.Task{Name: "t"}}
	h := &here{Spec: &Spec{}, cells: []map[string]cell.Cell{{}}}
	j := Job{Trial: &plan.Trial{}, Attempt: &store.Attempt{}}
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	preempted, preempt := context.WithCancelCause(t.Context())
	preempt(outcome.ErrPreempted)
	for _, c := range []struct {
		ctx  context.Context
		want record.Outcome
		by   record.Boundary
	}{{t.Context(), record.TaskInvalid, record.ByTask}, {interrupted, record.Cancelled, record.ByCore}, {preempted, record.Preempted, record.ByCore}} {
		r := h.notTheTask(c.ctx, j, planned, errors.New("cannot be read"))
		if r.Outcome != c.want || r.Error.Boundary != c.by || r.Error.Retry != (c.want == record.Preempted) {
			t.Errorf("%s by %s, retry %v; want %s by %s", r.Outcome, r.Error.Boundary, r.Error.Retry, c.want, c.by)
		}
	}
}

func TestATaskThatIsEditedDuringTheRunIsSeen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "task")
	f := &oneFile{}
	write := func(text string, age time.Duration) {
		t.Helper()
		at := time.Now().Add(-age)
		testlevel.Must(t, errors.Join(os.WriteFile(file, []byte(text), 0o600), os.Chtimes(file, at, at)))
	}
	write("a", time.Hour)
	planned := &plan.Task{Name: "t", Task: &task.Task{Name: "t", Digest: "sha256:a", Format: "one-file", Dir: dir}}
	g := &guard{formats: []task.Format{f}}
	check := func(want string, loads int) {
		t.Helper()
		err := g.check(t.Context(), 0, planned)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("got %v, want %q", err, want)
		}
		if f.loads != loads {
			t.Errorf("read %d times, want %d", f.loads, loads)
		}
	}
	check("", 1)
	check("", 1) // unchanged metadata: not read again
	write("a", time.Minute)
	check("", 2) // touched, but the content is the same
	write("b", time.Second)
	check("was changed during the run: it was sha256:a and is sha256:b", 3)
	write("broken", time.Second)
	check("it is broken", 4)
	write("a", 0)
	check("", 5)
	testlevel.Must(t, os.Remove(file))
	check("cannot be read any more", 6)
}

// fileOf is a format whose task depends on one file of its folder.
type fileOf struct{ oneFile }

func (*fileOf) Find(context.Context, string, task.Options) ([]string, error) {
	return []string{""}, nil
}

func (*fileOf) Files(t *task.Task) []string { return []string{t.HostPath("task")} }

func TestAnEditOfWhatATaskDoesNotDependOnIsNoEdit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string) {
		t.Helper()
		testlevel.Must(t, os.WriteFile(filepath.Join(dir, name), []byte("a"), 0o600))
	}
	write("task")
	f := &fileOf{}
	for format, want := range map[task.Format]int{f: 1, &f.oneFile: 3} {
		planned := &plan.Task{Name: "t", Task: &task.Task{Name: "t", Digest: "sha256:a", Format: "one-file", Dir: dir}}
		g := &guard{formats: []task.Format{format}}
		f.loads = 0
		for _, other := range []string{"task", "other-" + strconv.Itoa(want), "another-" + strconv.Itoa(want)} {
			if other != "task" {
				write(other)
			}
			if err := g.check(t.Context(), 0, planned); err != nil {
				t.Error(err)
			}
		}
		if f.loads != want {
			t.Errorf("%T: read %d times, want %d", format, f.loads, want)
		}
	}
}

func TestAnImageOfBeforeIsComparedWithThatOfAnAttempt(t *testing.T) {
	t.Parallel()
	before := &store.Index{Trials: []*store.TrialState{{Trial: &store.Trial{ID: "t1"}, Attempts: []store.AttemptState{{
		Number: 1, Result: &store.Brief{Outcome: record.Passed, Digests: map[string]string{
			"image of a": "sha256:1", "bundle b@1": "sha256:2", "agent x": "sha256:3",
		}},
	}}}}}
	result := func(image, bundle string) *record.Result {
		return &record.Result{
			Task: "a", Image: &environment.ImageFacts{Digest: image}, Bundles: []record.BundleUsed{{Name: "b@1", Digest: bundle}},
			Plugins: []record.PluginUsed{{Kind: "agent", Name: "x", Digest: "sha256:another, which resume has spoken of"}},
		}
	}
	if check := compare(&store.Index{}, nil); check != nil {
		t.Error("a run without attempts compares something")
	}
	refuse := compare(before, nil)
	if err := refuse(result("sha256:1", "sha256:2")); err != nil {
		t.Errorf("the same: %v", err)
	}
	for what, r := range map[string]*record.Result{
		"image of a: sha256:1 → sha256:9": result("sha256:9", "sha256:2"), "bundle b@1: sha256:2 → sha256:9": result("sha256:1", "sha256:9"),
	} {
		if err := refuse(r); err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "--accept-drift") {
			t.Errorf("%s: %v", what, err)
		}
	}
	var noted []string
	accept := compare(before, func(d string) error { noted = append(noted, d); return nil })
	for range 2 {
		if err := accept(result("sha256:9", "sha256:2")); err != nil {
			t.Errorf("accepted: %v", err)
		}
	}
	if want := []string{"image of a: sha256:1 → sha256:9"}; !slices.Equal(noted, want) {
		t.Errorf("noted %q, want %q", noted, want)
	}
}

func TestWhatTheKernelSaysOfMemoryIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		testlevel.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	if got := availableIn(file("meminfo", "MemTotal:       24576000 kB\nMemFree:  1 kB\nMemAvailable:   8388608 kB\n")); got != 8<<10 {
		t.Errorf("8 GiB are %d MiB", got)
	}
	if got := availableIn(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("an unknown memory has %d MiB", got)
	}
	machine := (&Spec{}).freeMiB()
	if machine <= 0 {
		t.Errorf("this machine has %d MiB", machine)
	}
	for _, tt := range []struct {
		job  job
		want int64
	}{{job{}, machine}, {job{1, true}, 1}, {job{0, true}, 1}, {job{1 << 40, true}, machine}} {
		// Both numbers of the machine are of different moments.
		if got := (&Spec{Memory: tt.job}).freeMiB(); got != tt.want && (tt.want != machine || got <= machine/2) {
			t.Errorf("a job with %+v leaves %d MiB, want %d", tt.job, got, tt.want)
		}
	}
}

// job is a job that has this much memory left.
type job struct {
	left    int64
	limited bool
}

func (j job) FreeMiB() (left int64, limited bool) { return j.left, j.limited }
func (job) Kills() int64                          { return 0 }

// A run folder may come from somebody else. What plugins print must not get into
// another file of the user, and a pipe must not stop a run.
func TestOutputIsKeptInTheRunFolderOnly(t *testing.T) {
	t.Parallel()
	host, err := plugin.New(plugin.Options{Dirs: []string{}})
	testlevel.Must(t, err)
	defer host.Stop()
	dir := t.TempDir()
	s := &Spec{Store: &store.Run{Dir: dir}, Host: host, Plan: &plan.Plan{}}
	file, other := filepath.Join(dir, store.PluginsFile), filepath.Join(t.TempDir(), "other")
	for name, place := range map[string]func() error{
		"a link": func() error { return os.Symlink(other, file) },
		"a pipe": func() error { return syscall.Mkfifo(file, 0o600) },
	} {
		testlevel.Must(t, place())
		if o, wrong := s.keepOutput(&here{Spec: s}); wrong == nil {
			t.Errorf("%s was written to: %v", name, o.close())
		}
		testlevel.Must(t, os.Remove(file))
	}
	if _, err = os.Stat(other); err == nil {
		t.Error("the file behind the link was made")
	}
	o, err := s.keepOutput(&here{Spec: s})
	if err == nil {
		err = o.close()
	}
	if err != nil {
		t.Error(err)
	}
}
