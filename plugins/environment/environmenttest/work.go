package environmenttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/archive"
)

// workClauses are about what sandboxd needs of the place in which it runs
// commands and moves files: the kernel's calls, devices and room. What it does
// the same everywhere is not tested here.
var workClauses = []conformance.Clause[Subject]{
	{
		Name:   "a timeout kills the whole tree",
		Guards: "grandchildren that work on after the deadline",
		Time:   5 * time.Second,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.borrowed(ctx, t)
			c := b.shell(ctx, t)
			r, err := c.Exec(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", "sh -c 'sleep 7777' & setsid sleep 7777 & sleep 7777"}, Timeout: 300 * time.Millisecond})
			if err != nil || !r.TimedOut {
				t.Errorf("got %+v, %v; want a timeout", r, err)
			}
			noneLeft(ctx, t, b, "7777")
		},
	},
	{
		Name:   "concurrent commands do not mix",
		Guards: "output of one command in the answer of another",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.common(ctx, t).shell(ctx, t)
			var all sync.WaitGroup
			for i := range 16 {
				all.Go(func() {
					want := strings.Repeat(fmt.Sprintf("line of %d\n", i), 200)
					var out bytes.Buffer
					r, err := c.Exec(ctx, sandbox.Command{
						Argv: []string{"/bin/sh", "-c", fmt.Sprintf("i=0; while [ $i -lt 200 ]; do echo line of %d; i=$((i+1)); done; sleep 0.3", i)}, Stdout: &out, // they overlap
					})
					if err != nil || !r.OK() || out.String() != want {
						t.Errorf("command %d: %d bytes, %+v, %v", i, out.Len(), r, err)
					}
				})
			}
			all.Wait()
		},
	},
	{
		Name:   "a terminal behaves like a terminal",
		Guards: "editors and pagers that refuse to start",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.common(ctx, t).shell(ctx, t)
			term, err := c.Terminal(ctx, sandbox.TerminalSpec{ID: fmt.Sprint("kit-", s.kit.counter.Add(1)), Argv: []string{"/bin/sh", "-c", "stty size; tty"}, Rows: 33, Columns: 91})
			if err != nil {
				t.Fatalf("terminal: %v", err)
			}
			defer func() { _ = term.Close() }()
			out, err := io.ReadAll(term)
			if err != nil || !strings.Contains(string(out), "33 91") || !strings.Contains(string(out), "/dev/pts/") {
				t.Errorf("printed %q, %v", out, err)
			}
		},
	},
	{
		Name:   "an uploaded folder comes back unchanged",
		Guards: "lost modes, links or names in the artifacts of an attempt",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.common(ctx, t).shell(ctx, t)
			from, to := t.TempDir(), t.TempDir()
			for name, mode := range map[string]os.FileMode{"run.sh": 0o755, "sub/plain": 0o644, "sub/\u00e4 \u20ac": 0o600, "sub/\xff": 0o644} {
				path := filepath.Join(from, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("of "+name), mode), os.Chmod(path, mode)); err != nil {
					t.Fatalf("%v", err)
				}
			}
			if err := c.UploadFolder(ctx, from, "/tmp/kit-folder", sandbox.UploadOptions{}); err != nil {
				t.Fatalf("upload: %v", err)
			}
			if _, err := c.DownloadFolder(ctx, "/tmp/kit-folder", to, archive.Limits{}); err != nil {
				t.Fatalf("download: %v", err)
			}
			if want, got := tree(t, from), tree(t, to); got != want {
				t.Errorf("went in as\n%sand came out as\n%s", want, got)
			}
		},
	},
	{
		Name:   "50 MiB can be sent in and read back",
		Guards: "a large artifact that breaks the connection",
		Time:   20 * time.Second,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.common(ctx, t).shell(ctx, t)
			data := bytes.Repeat([]byte("0123456789abcdef"), 50<<20/16)
			if err := c.WriteFile(ctx, "/tmp/kit-large", data, sandbox.FileOptions{}); err != nil {
				t.Fatalf("write: %v", err)
			}
			got, err := c.ReadFile(ctx, "/tmp/kit-large", 64<<20)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("read %d bytes, %v; want %d", len(got), err, len(data))
			}
			sh(ctx, t, c, "rm /tmp/kit-large")
		},
	},
}

// noneLeft waits until "sleep n" no longer runs in b.
func noneLeft(ctx context.Context, t *conformance.T, b *box, n string) {
	eventually(ctx, t, "no sleep "+n+" is left", func() bool {
		ps, err := b.core.Processes(ctx)
		if err != nil {
			t.Fatalf("processes: %v", err)
		}
		for _, p := range ps.List {
			if p.State != "Z" && len(p.Argv) == 2 && p.Argv[1] == n {
				return false
			}
		}
		return true
	})
}

// tree lists files below dir with mode and content.
func tree(t *conformance.T, dir string) string {
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		b.WriteString(info.Mode().String() + " " + rel + ": " + string(text) + "\n")
		return err
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return b.String()
}
