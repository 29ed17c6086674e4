package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/plan"
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

func TestATaskThatIsEditedDuringTheRunIsSeen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "task")
	f := &oneFile{}
	write := func(text string, age time.Duration) {
		t.Helper()
		at := time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.Chtimes(file, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	write("a", time.Hour)
	planned := &plan.Task{Name: "t", Task: &task.Task{Name: "t", Digest: "sha256:a", Format: "one-file", Dir: dir}}
	g := &guard{again: reader([]task.Format{f}, task.Options{})}
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
	check("", 1) // looks as it did: not read again
	write("a", time.Minute)
	check("", 2) // touched, and the same
	write("b", time.Second)
	check("was changed during the run: it was sha256:a and is sha256:b", 3)
	write("broken", time.Second)
	check("it is broken", 4)
	write("a", 0)
	check("", 5)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	check("cannot be read any more", 6)
}
