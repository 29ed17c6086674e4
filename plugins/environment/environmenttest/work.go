package environmenttest

import (
	"bytes"
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
var workClauses = []clause{
	conformance.New("a timeout kills the whole tree", "grandchildren that work on after the deadline", func(t *conformance.T, s Subject) {
		b := s.Fresh(t, nil)
		r, err := b.shell().Exec(t.Context(), sandbox.Command{
			Argv: []string{"/bin/sh", "-c", "sh -c 'sleep 7777' & setsid sleep 7777 & sleep 7777"}, Timeout: 300 * time.Millisecond,
		})
		if err != nil || !r.TimedOut {
			t.Errorf("got %+v, %v; want a timeout", r, err)
		}
		t.Eventually("no sleep is left", func() bool {
			for _, p := range b.processes().List {
				if argv := p.Argv(); p.State != "Z" && len(argv) == 2 && argv[1] == "7777" {
					return false
				}
			}
			return true
		})
	}).Within(5 * time.Second),
	conformance.New("concurrent commands do not mix", "output of one command in the answer of another", func(t *conformance.T, s Subject) {
		c := s.common(t).shell()
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				want := strings.Repeat(fmt.Sprintf("line of %d\n", i), 200)
				var out bytes.Buffer
				script := fmt.Sprintf("i=0; while [ $i -lt 200 ]; do echo line of %d; i=$((i+1)); done; sleep 0.3", i) // they overlap
				r, err := c.Exec(t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-c", script}, Stdout: &out})
				if err != nil || !r.OK() || out.String() != want {
					t.Errorf("command %d: %d bytes, %+v, %v", i, out.Len(), r, err)
				}
			})
		}
		all.Wait()
	}),
	conformance.New("a terminal behaves like a terminal", "editors and pagers that refuse to start", func(t *conformance.T, s Subject) {
		term, err := s.common(t).shell().Terminal(t.Context(), sandbox.TerminalSpec{ID: "kit", Argv: []string{"/bin/sh", "-c", "stty size; tty"}, Rows: 33, Columns: 91})
		t.Must("terminal", err)
		defer func() { _ = term.Close() }()
		out, err := io.ReadAll(term)
		if err != nil || !strings.Contains(string(out), "33 91") || !strings.Contains(string(out), "/dev/pts/") {
			t.Errorf("printed %q, %v", out, err)
		}
	}),
	conformance.New("an uploaded folder comes back unchanged", "lost modes, links or names in the artifacts of an attempt", func(t *conformance.T, s Subject) {
		c := s.common(t).shell()
		modes := map[string]os.FileMode{"run.sh": 0o755, "sub/plain": 0o644, "sub/\u00e4 \u20ac": 0o600, "sub/\xff": 0o644}
		from, to := t.TempDir(), t.TempDir()
		for name, mode := range modes {
			t.Write(from, map[string]string{name: "of " + name})
			t.Must("lay out files", os.Chmod(filepath.Join(from, name), mode))
		}
		t.Must("upload", c.UploadFolder(t.Context(), from, "/tmp/kit-folder", sandbox.UploadOptions{}))
		_, err := c.DownloadFolder(t.Context(), "/tmp/kit-folder", to, archive.Limits{})
		t.Must("download", err)
		for name, mode := range modes {
			text, err := os.ReadFile(filepath.Join(to, name))
			info, other := os.Stat(filepath.Join(to, name))
			if errors.Join(err, other) != nil || string(text) != "of "+name || info.Mode() != mode {
				t.Errorf("%q came back with %q, %v; want mode %s", name, text, errors.Join(err, other), mode)
			}
		}
	}),
	conformance.New("50 MiB can be sent in and read back", "a large artifact that breaks the connection", func(t *conformance.T, s Subject) {
		b := s.common(t)
		data := bytes.Repeat([]byte("0123456789abcdef"), 50<<20/16)
		t.Must("write", b.shell().WriteFile(t.Context(), "/tmp/kit-large", data, sandbox.FileOptions{}))
		got, err := b.shell().ReadFile(t.Context(), "/tmp/kit-large", 64<<20)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("read %d bytes, %v; want %d", len(got), err, len(data))
		}
		b.sh("rm /tmp/kit-large")
	}).Within(20 * time.Second),
}
