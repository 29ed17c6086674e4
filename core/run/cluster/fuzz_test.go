package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/testlevel"
)

// What other processes wrote to the shared folder is taken only if it is whole: the
// numbers of lines rise, a name is one that can be part of a path, and a line that
// is cut anywhere and completed later is read once.
func FuzzFiles(f *testing.F) {
	for _, v := range []any{&Line{Seq: 1}, &lease{Holder: "p", Nonce: "n"}, &Job{Version: 1, Run: "r", Trial: "t", Attempt: 1}} {
		b, err := store.Seal(v)
		testlevel.Must(f, err)
		f.Add(b, len(b)/2)
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		dir := t.TempDir()
		testlevel.Must(t, os.Mkdir(filepath.Join(dir, leasesDir), 0o700))
		for _, name := range []string{"journal", leasesDir + "/x"} {
			testlevel.Must(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		}
		if l, err := holderOf(dir, "x"); err == nil && !safe.MatchString(l.Holder) {
			t.Errorf("the lease has %q", l.Holder)
		}
		follows(t, dir, b, cut)
	})
}

// follows reads a journal in dir whole, and again in two parts.
func follows(t *testing.T, dir string, b []byte, cut int) {
	t.Helper()
	whole := follower{dir: dir, name: "journal"}
	lines, err := whole.Read(unreadable)
	testlevel.Must(t, err)
	last := 0
	for _, l := range lines {
		if l.Seq <= last {
			t.Errorf("line %d after %d", l.Seq, last)
		}
		last = l.Seq
	}
	if cut = max(0, min(cut, len(b))); os.WriteFile(filepath.Join(dir, "journal"), b[:cut], 0o600) != nil {
		t.Fatal("it cannot be written")
	}
	parts := follower{dir: dir, name: "journal"}
	first, err := parts.Read(0)
	if err != nil || os.WriteFile(filepath.Join(dir, "journal"), b, 0o600) != nil {
		t.Fatal(err)
	}
	rest, err := parts.Read(unreadable)
	if err != nil || len(first)+len(rest) != len(lines) {
		t.Errorf("%d lines of the whole journal, %d + %d of one that was cut at %d: %v", len(lines), len(first), len(rest), cut, err)
	}
}
