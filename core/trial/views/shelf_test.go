package views_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/plugins/task"
)

// small is the room of a view that fits in memory.
func small() *views.Room { return &views.Room{Left: 4 << 20} }

// A view of links is like one that was made for it, for each role, and taking one
// away leaves the others.
func TestAShelvedViewIsLikeAnother(t *testing.T) {
	t.Parallel()
	tk := planted(t)
	dir := t.TempDir()
	shelf := views.NewShelf(filepath.Join(dir, "shelf"))
	for role := range sees {
		whole := filepath.Join(dir, string(role))
		if err := views.Build(whole, tk, role, "one", small()); err != nil {
			t.Fatal(err)
		}
		want := everything(t, whole)
		for n := range 4 {
			view := filepath.Join(dir, fmt.Sprint(role, n))
			room := small()
			if err := shelf.Build(view, views.Seen{Task: tk, Role: role, Stage: "one"}, room); err != nil {
				t.Fatal(err)
			}
			if got := everything(t, view); got != want {
				t.Errorf("%s, view %d:\n%s\nwant\n%s", role, n, got, want)
			}
			a, errA := os.Stat(filepath.Join(whole, views.TaskFile))
			b, errB := os.Stat(filepath.Join(view, views.TaskFile))
			if err := errors.Join(errA, errB); err != nil || a.Mode() != b.Mode() {
				t.Errorf("modes %v and %v, %v", a.Mode(), b.Mode(), err)
			}
			if err := errors.Join(os.Mkdir(filepath.Join(view, views.AttemptFolder), 0o700), os.RemoveAll(view)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The first view is not kept, the second is; after a change of the files nothing
// of before is used.
func TestAShelvedViewIsOfTheFilesAsTheyLook(t *testing.T) {
	t.Parallel()
	tk := planted(t)
	dir := t.TempDir()
	shelf := views.NewShelf(filepath.Join(dir, "shelf"))
	public := filepath.Join(tk.Dir, "data", "public")
	build := func(name, looks string) string {
		t.Helper()
		view := filepath.Join(dir, name)
		if err := shelf.Build(view, views.Seen{Task: tk, Looks: looks, Role: task.RoleAgent, Stage: "one"}, small()); err != nil {
			t.Fatal(err)
		}
		return everything(t, view)
	}
	for n, want := range []int{0, 1, 1} {
		build(fmt.Sprint("before", n), "old")
		if on, _ := filepath.Glob(filepath.Join(dir, "shelf", "*")); len(on) != want {
			t.Errorf("after %d views %d are on the shelf, want %d", n+1, len(on), want)
		}
	}
	if err := os.WriteFile(public, []byte("MARK-changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if text := build(fmt.Sprint("after", n), "new"); !strings.Contains(text, "MARK-changed") {
			t.Errorf("view %d is of the files before the change: %s", n, text)
		}
	}
	if text := build("old", "old"); strings.Contains(text, "MARK-changed") {
		t.Error("a view on the shelf changed with the task's files")
	}
}

// What is large is made each time, and what has no room, or may be on another
// file system, is as without a shelf.
func TestWhatAShelfDoesNotTake(t *testing.T) {
	t.Parallel()
	tk := planted(t)
	dir := t.TempDir()
	var none *views.Shelf
	if err := none.Build(filepath.Join(dir, "none"), views.Seen{Task: tk, Role: task.RoleAgent, Stage: "one"}, small()); err != nil {
		t.Error(err)
	}
	shelf := views.NewShelf(filepath.Join(dir, "shelf"))
	on := func() int {
		all, _ := filepath.Glob(filepath.Join(dir, "shelf", "*"))
		return len(all)
	}
	for n := range 3 {
		if err := shelf.Build(filepath.Join(dir, fmt.Sprint("roomless", n)), views.Seen{Task: tk, Role: task.RoleAgent, Stage: "one"}, nil); err != nil || on() != 0 {
			t.Errorf("a view without a room: %v, %d on the shelf", err, on())
		}
	}
	for n := range 3 {
		view := filepath.Join(dir, fmt.Sprint("tight", n))
		what := views.Seen{Task: tk, Role: task.RoleVerifier, Stage: "one"}
		if err := shelf.Build(view, what, &views.Room{Left: 1}); !errors.Is(err, views.ErrNoRoom) {
			t.Errorf("a view in one byte: %v", err)
		}
	}
	before := on()
	if err := os.WriteFile(filepath.Join(tk.Dir, "data", "public"), make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		view := filepath.Join(dir, fmt.Sprint("large", n))
		if err := shelf.Build(view, views.Seen{Task: tk, Looks: "large", Role: task.RoleAgent, Stage: "one"}, small()); err != nil || on() != before {
			t.Errorf("a large view: %v, %d on the shelf, before %d", err, on(), before)
		}
		if info, err := os.Stat(filepath.Join(view, "references", "public")); err != nil || info.Size() != 2<<20 {
			t.Errorf("its large file: %v", err)
		}
	}
}

// All that it takes has an end: views of more stages than fit are made each time.
func TestAShelfIsFullOnce(t *testing.T) {
	t.Parallel()
	tk := planted(t)
	dir := t.TempDir()
	shelf := views.NewShelf(filepath.Join(dir, "shelf"))
	if err := os.WriteFile(filepath.Join(tk.Dir, "data", "public"), make([]byte, 900<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for n := range 40 {
		what := views.Seen{Task: tk, Looks: fmt.Sprint(n), Role: task.RoleAgent, Stage: "one"}
		for again := range 2 {
			if err := shelf.Build(filepath.Join(dir, fmt.Sprint(n, again)), what, small()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if on, _ := filepath.Glob(filepath.Join(dir, "shelf", "*")); len(on) == 0 || len(on) > 35 {
		t.Errorf("%d views of 0.9 MiB are on the shelf, want some and at most 35", len(on))
	}
}

func TestManyViewsAtOnce(t *testing.T) {
	t.Parallel()
	tk := planted(t)
	dir := t.TempDir()
	shelf := views.NewShelf(filepath.Join(dir, "shelf"))
	texts := make([]string, 16)
	var all sync.WaitGroup
	for n := range texts {
		all.Go(func() {
			view := filepath.Join(dir, fmt.Sprint(n))
			if err := shelf.Build(view, views.Seen{Task: tk, Role: task.RoleVerifier, Stage: "one"}, small()); err != nil {
				t.Error(err)
				return
			}
			texts[n] = everything(t, view)
		})
	}
	all.Wait()
	for n, text := range texts {
		if text != texts[0] {
			t.Errorf("view %d is %q, want %q", n, text, texts[0])
		}
	}
}
