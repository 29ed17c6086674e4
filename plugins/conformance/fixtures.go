package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// TempDir makes an empty folder that is removed after the clause. Its path is
// short enough for sockets in it.
func (t *T) TempDir() string {
	dir, err := os.MkdirTemp("", "bk")
	t.Must("make a folder for the clause", err)
	t.Cleanup(func(context.Context) { _ = os.RemoveAll(dir) })
	return dir
}

// Write writes files below dir, by slash-separated name. An existing file keeps its
// mode.
func (t *T) Write(dir string, files map[string]string) {
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		t.Must("lay out files", errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)))
	}
}

// Copy copies a folder, links as links, to a new one of the same name.
func (t *T) Copy(dir string) string {
	to := filepath.Join(t.TempDir(), filepath.Base(dir))
	t.Must("copy "+dir, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// Tree lists what is below dir, with mode, time of change and size, and the
// content of regular files, so that any change is seen.
func (t *T) Tree(dir string) string {
	var b strings.Builder
	t.Must("list "+dir, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&b, strings.TrimPrefix(path, dir), info.Mode(), info.ModTime())
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			fmt.Fprintf(&b, "%d bytes: %.2000q\n", len(text), text)
			return err
		}
		return nil
	}))
	return b.String()
}

// Unchanged fails the clause if do changes what is below dir.
func (t *T) Unchanged(dir string, do func()) {
	before := t.Tree(dir)
	do()
	if after := t.Tree(dir); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
}

// Ends fails the clause if f takes longer than d on an idle machine, and returns
// then. f must not end the clause.
func (t *T) Ends(what string, d time.Duration, f func()) {
	if !inTime(Patience(d), f) {
		t.Errorf("%s: still working after %v", what, d)
	}
}

// Eventually waits until f is true, five seconds on an idle machine. If that does
// not come about, the clause fails before its time is used up: the plugin does
// not hang, and the clauses after it can be tried.
func (t *T) Eventually(what string, f func() bool) {
	wait := Patience(5 * time.Second)
	if end, ok := t.ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)*4/5)
	}
	late := time.After(wait)
	for !f() {
		select {
		case <-late:
			t.Fatalf("not so in time: %s", what)
		case <-t.ctx.Done():
			t.Fatalf("not so in time: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
