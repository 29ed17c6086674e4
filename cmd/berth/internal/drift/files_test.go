package drift_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/drift"
	"github.com/berth-eval/berth/core/store"
)

func TestFilesOfTheExperimentAreKnownByTheirDigests(t *testing.T) {
	t.Parallel()
	m := &store.Manifest{Header: store.Header{Experiment: "x"}}
	r, err := store.Create(t.TempDir(), m, []store.File{
		{Name: "x.hcl", Bytes: []byte("a")}, {Name: "sub/s.sh", Bytes: []byte("b")}, {Name: "../up.txt", Bytes: []byte("c")}, {Name: "/abs.txt", Bytes: []byte("d")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err = r.Close(); err != nil {
		t.Fatal(err)
	}
	if m, err = store.ReadManifest(r.Dir); err != nil || len(m.Header.Files) != 4 {
		t.Fatalf("%+v, %v", m, err)
	}
	if changed, changedErr := drift.ChangedFiles(r.Dir, m); changedErr != nil || len(changed) != 0 {
		t.Errorf("nothing changed: %v, %v", changed, changedErr)
	}
	for name, text := range map[string]string{"../up.txt": "c", "/abs.txt": "d", "sub/s.sh": "b"} {
		if b, readErr := os.ReadFile(r.Manifest.Header.Kept(r.Dir, name)); readErr != nil || string(b) != text {
			t.Errorf("%s is kept as %q, %v", name, b, readErr)
		}
	}
	if err = drift.Untrusted(r.Dir); err != nil {
		t.Errorf("a run of ours: %v", err)
	}
	err = errors.Join(
		os.WriteFile(r.Manifest.Header.Kept(r.Dir, "x.hcl"), []byte("e"), 0o600), os.Remove(r.Manifest.Header.Kept(r.Dir, "/abs.txt")),
		os.WriteFile(r.Manifest.Header.Kept(r.Dir, "more.hcl"), nil, 0o600), os.Remove(r.Manifest.Header.Kept(r.Dir, "sub/s.sh")), os.Symlink("/etc/passwd", r.Manifest.Header.Kept(r.Dir, "sub/s.sh")),
	)
	if err != nil {
		t.Fatal(err)
	}
	changed, err := drift.ChangedFiles(r.Dir, m)
	want := []string{"more.hcl: was added", "outside/abs.txt: is missing", "sub/s.sh: is not a regular file", "x.hcl: was changed"}
	if err != nil || !slices.Equal(changed, want) {
		t.Errorf("got %q, %v; want %q", changed, err, want)
	}
	if err := drift.Untrusted(r.Dir); err == nil || !strings.Contains(err.Error(), "is a link") {
		t.Errorf("with a link: %v", err)
	}
	for _, open := range []string{"journal", "experiment/outside", "."} {
		path := filepath.Join(r.Dir, open)
		_ = os.Remove(r.Manifest.Header.Kept(r.Dir, "sub/s.sh"))
		if err := os.Chmod(path, 0o775); err != nil { //nolint:gosec // what is to be found
			t.Fatal(err)
		}
		if err := drift.Untrusted(r.Dir); err == nil || !strings.Contains(err.Error(), "written to by others") {
			t.Errorf("%s open: %v", open, err)
		}
		if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // as it was
			t.Fatal(err)
		}
	}
}
