package command

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// A run that was exported is audited and replayed where neither its experiment nor
// its tasks are, and a replay that differs is said.
func TestAPublishedRunIsReplayed(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	e2etest.Must(t, os.CopyFS(filepath.Join(dir, "q"), os.DirFS(filepath.Join(tree.Root, "examples", "quickstart"))))
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"run", "q"}, 0, "6 passed + 3 failed"},
		{[]string{"export", "last", "--to", "bundle", "-o", "run.tar.zst"}, 0, "9 trials written to run.tar.zst"},
		{[]string{"resume", "last", "--require", "agent=nobody: passed = planned"}, 2, `no cell has agent "nobody"`},
		{[]string{"regrade", "last", "--require", "agent=nobody: passed = planned"}, 2, `no cell has agent "nobody"`},
		{[]string{"replay", "last", "--in-flight", "0"}, 2, "--in-flight must be at least 1"},
	} {
		if r := berthWith(t, dir, nil, tt.args...); r.code != tt.code || !strings.Contains(r.out+r.stderr, tt.want) {
			t.Fatalf("%q ended with %d:\n%s%s", tt.args, r.code, r.out, r.stderr)
		}
	}
	// What is exported and replayed are the tasks of the run.
	test := filepath.Join(dir, "q", "tasks", "hello-file", "tests", "test.sh")
	was := e2etest.Read(t, test)
	e2etest.Write(t, filepath.Dir(test), map[string]string{"test.sh": was + "# changed\n"})
	for _, args := range [][]string{{"export", "last", "--to", "bundle", "-o", "other.tar.zst"}, {"replay", "last", "--no-live"}} {
		if r := berthWith(t, dir, nil, args...); r.code != 2 || !strings.Contains(r.stderr, "task samples/berth/hello-file: content: sha256:") {
			t.Errorf("%q with another test: %d\n%s%s", args, r.code, r.out, r.stderr)
		}
	}
	elsewhere := t.TempDir()
	e2etest.Must(t, os.Rename(filepath.Join(dir, "run.tar.zst"), filepath.Join(elsewhere, "run.tar.zst")))
	e2etest.Must(t, os.RemoveAll(filepath.Join(dir, "q")))
	e2etest.Write(t, elsewhere, map[string]string{"other": "no archive"})
	changedArchive(t, elsewhere, "newer.tar.zst", "berth.json", `"version": 1`, `"version": 2`)
	changedArchive(t, elsewhere, "manifest.tar.zst", "run/manifest.jsonl", `{"version":1`, `{"version":7`)
	changedArchive(t, elsewhere, "task.tar.zst", "tasks/samples/hello-file/tests/test.sh", "#!/bin/sh", "#!/bin/sh ")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"audit", "run.tar.zst"}, 0, "The record is consistent"},
		{[]string{"audit", "newer.tar.zst"}, 2, "the archive has version 2, this berth reads 1: use the berth that made it ("},
		{[]string{"replay", "newer.tar.zst", "--trust"}, 2, "the archive has version 2"},
		{[]string{"audit", "manifest.tar.zst"}, 2, "version 7"},
		{[]string{"audit", "task.tar.zst"}, 1, `the task "berth/hello-file" has the digest sha256:`},
		{[]string{"replay", "run.tar.zst"}, 2, "replay it with --trust"},
		{[]string{"replay", "other", "--trust"}, 2, "not an archive of a run"},
		{[]string{"replay", "run.tar.zst", "berth_hello-file--terminus", "--trust"}, 0, "1 of 1 replayed trials agree in everything"},
	} {
		if r := berthWith(t, elsewhere, nil, tt.args...); r.code != tt.code || !strings.Contains(r.out+r.stderr, tt.want) {
			t.Errorf("%q ended with %d, want %d and %q:\n%s%s", tt.args, r.code, tt.code, tt.want, r.out, r.stderr)
		}
	}
}

// changedArchive copies the archive run.tar.zst in dir, with a text replaced in one
// of its files.
func changedArchive(t *testing.T, dir, to, name, old, with string) {
	t.Helper()
	in, err := os.Open(filepath.Join(dir, "run.tar.zst"))
	e2etest.Must(t, err)
	defer in.Close()
	out, err := os.Create(filepath.Join(dir, to))
	e2etest.Must(t, err)
	defer out.Close()
	unpacked, err := zstd.NewReader(in)
	e2etest.Must(t, err)
	defer unpacked.Close()
	packed, err := zstd.NewWriter(out)
	e2etest.Must(t, err)
	r, w, done := tar.NewReader(unpacked), tar.NewWriter(packed), false
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		e2etest.Must(t, err)
		b, err := io.ReadAll(r)
		e2etest.Must(t, err)
		if h.Name == name && strings.Contains(string(b), old) {
			b, done = []byte(strings.Replace(string(b), old, with, 1)), true
			h.Size = int64(len(b))
		}
		e2etest.Must(t, w.WriteHeader(h))
		_, err = w.Write(b)
		e2etest.Must(t, err)
	}
	e2etest.Must(t, errors.Join(w.Close(), packed.Close()))
	if !done {
		t.Fatalf("the archive has no %s with %q", name, old)
	}
}
