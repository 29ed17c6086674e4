package task

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// levels is another format: a folder with a file "levels" holds its tasks.
type levels struct{ marked }

func (levels) Name() string { return "levels" }

func (levels) Detect(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "levels"))
	return err == nil
}

func TestTasksOfAnotherFormatAreNamed(t *testing.T) {
	t.Parallel()
	root := dataset(t, map[string]string{"a": "org/a", "games/one/deep": "-", "none": "-"})
	for _, dir := range []string{"games/one", "a"} { // those in a task are its own files
		if err := os.WriteFile(filepath.Join(root, dir, "levels"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	formats := []Format{marked{}, levels{}}
	l, err := List(t.Context(), marked{}, root, ListOptions{})
	if got := l.Foreign(root, marked{}, formats); err != nil || len(got) != 1 || !strings.HasPrefix(got[0], `games/one holds tasks of the format "levels", `) {
		t.Errorf("%q, %v", got, err)
	}
	if err = os.WriteFile(filepath.Join(root, "levels"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := l.Foreign(root, marked{}, formats); len(got) != 2 || !strings.HasPrefix(got[0], ". holds tasks") {
		t.Errorf("in the folder itself: %q", got)
	}
}

func TestInvalidTasksAreIncludedByNameIfNoneIsValid(t *testing.T) {
	t.Parallel()
	l, err := List(t.Context(), marked{}, dataset(t, map[string]string{"b": "", "c": ""}), ListOptions{Include: []string{"org/b"}})
	if err != nil || items(l) != "b!" {
		t.Errorf("%v, %v", items(l), err)
	}
}
