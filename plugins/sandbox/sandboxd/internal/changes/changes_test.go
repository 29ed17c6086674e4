package changes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/changes"
)

// write makes a program.
func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // a tree like a system's
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil { //nolint:gosec // programs
		t.Fatal(err)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// found are the files below root that changed.
func found(s *changes.Search, root string) (names []string) {
	for _, f := range s.Files {
		if rest, ok := strings.CutPrefix(f, root+"/"); ok {
			names = append(names, rest)
		}
	}
	return names
}

// The clock that stamps files stands still for milliseconds: without waiting,
// what was written just before looks like what was written just after.
func TestAMomentTellsBeforeFromAfter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 50 {
		before, after := fmt.Sprint(dir, "/before", i), fmt.Sprint(dir, "/after", i)
		write(t, before, "")
		s := &changes.Search{After: changes.Moment()}
		write(t, after, "")
		s.File(before)
		s.File(after)
		if !slices.Equal(s.Files, []string{after}) {
			t.Fatalf("round %d: found %q, want what was written after", i, s.Files)
		}
	}
}

func TestProgramsAndTheirInterpreters(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	write(t, root+"/script", "#!"+root+"/venv/python -u\n")
	write(t, root+"/tests/test.sh", "#! "+root+"/other/sh\n")
	s := &changes.Search{After: changes.Moment()}
	write(t, root+"/venv/python", "")
	write(t, root+"/other/sh", "#!"+root+"/other/sh\n") // a circle
	s.Program(root + "/script")
	s.Program(root + "/tests/test.sh")
	s.Program(root + "/missing")
	if got, want := found(s, root), []string{"venv/python", "other/sh"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

func TestTheWordsOfAService(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		argv         []string
		text         string // of app/serve.py, in the image
		changed      string
		named, calls []string
	}{
		{[]string{"python3", "-u", "serve.py"}, "", "app/serve.py", []string{"app/serve.py"}, nil},
		{[]string{"sh", "-c", "cd /; exec python3 ROOT/app/serve.py >ROOT/app/log 2>&1"}, "", "app/serve.py", []string{"app/serve.py"}, nil},
		{[]string{"sh", "-c", "python3 serve.py > log"}, "", "app/log", nil, nil},
		{[]string{"gunicorn", "serve:app"}, "", "app/serve.py", []string{"app/serve.py"}, nil},
		{[]string{"python3", "-m", "lib.main"}, "", "app/lib/main.py", []string{"app/lib/main.py"}, nil},
		{[]string{"python3", "serve.py"}, "from lib.main import run\n", "app/lib/main.py", nil, []string{"app/lib/main.py"}},
		{[]string{"./serve.py"}, "#!/bin/sh\nwhile :; do $(tick); done\n", "app/tick", nil, []string{"app/tick"}},
		{[]string{"sh", "-eu", "log"}, "", "app/log", []string{"app/log"}, nil},
		{[]string{"perl", "-w", "ROOT/app/log"}, "", "app/log", []string{"app/log"}, nil},
		{[]string{"python3.11", "."}, "", "app/log", nil, nil},
		{[]string{"sh", "-c", "cat log; while :; do . ./log; done"}, "", "app/log", []string{"app/log"}, nil},
		{[]string{"cat", "log"}, "", "app/log", nil, nil},
		{[]string{"./serve.py"}, "#!/bin/sh\n. ./log\n", "app/log", nil, []string{"app/log"}},
		{[]string{"./serve.py"}, "#!/bin/sh\ncat ./log\n", "app/log", nil, nil},
		{[]string{"tick", "app/nothing"}, "", "app/other.py", nil, nil},
	} {
		t.Run(strings.Join(tt.argv, " "), func(t *testing.T) {
			t.Parallel()
			root, err := filepath.EvalSymlinks(t.TempDir())
			must(t, err)
			for _, name := range []string{"app/lib/main.py", "app/tick", "app/other.py"} {
				write(t, filepath.Join(root, name), "#!/bin/sh\n")
			}
			write(t, root+"/app/serve.py", tt.text)
			must(t, os.WriteFile(root+"/app/log", nil, 0o600))
			s := &changes.Search{After: changes.Moment()}
			must(t, os.Chtimes(filepath.Join(root, tt.changed), time.Unix(0, 0), time.Unix(0, 0)))
			for i := range tt.argv {
				tt.argv[i] = strings.ReplaceAll(tt.argv[i], "ROOT", root)
			}
			p := changes.Place{Dir: root + "/app", Lookup: func(string) string { return "" }}
			s.Words(tt.argv, p)
			if got := found(s, root); !slices.Equal(got, tt.named) {
				t.Errorf("the command names %q, want %q", got, tt.named)
			}
			s.Follow(p)
			if got := found(s, root); !slices.Equal(got, slices.Concat(tt.named, tt.calls)) {
				t.Errorf("with what that names: %q, want %q", got, tt.calls)
			}
		})
	}
}
