package bundle_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// put makes a bundle by hand.
func put(t *testing.T, dir string, m bundle.Manifest, files map[string]string) string {
	t.Helper()
	folder := filepath.Join(dir, m.ID())
	for name, text := range files {
		path := filepath.Join(folder, bundle.Root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, bundle.ManifestFile), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}

func manifest(name, version string) bundle.Manifest {
	return bundle.Manifest{Format: 1, Name: name, Version: version, Arch: runtime.GOARCH, Place: bundle.Place, Digest: "sha256:x"}
}

func TestABundleIsFoundAndMounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder := put(t, dir, manifest("a", "1"), map[string]string{"bin/a": "x"})
	put(t, dir, manifest("a", "2"), map[string]string{"bin/a": "y"})
	if err := os.MkdirAll(filepath.Join(dir, ".making-1", "whole"), 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Open(dir, "a", "1")
	if err != nil {
		t.Fatal(err)
	}
	if m := b.Mount(); m.Source != filepath.Join(folder, bundle.Root) || m.Target != bundle.Place || m.Digest != "sha256:x" || m.Name != "a@1" {
		t.Errorf("mount %+v", m)
	}
	list, err := bundle.List(dir)
	if err != nil || len(list) != 2 || list[0].ID() != "a@1" || list[1].ID() != "a@2" {
		t.Errorf("list %+v, %v", list, err)
	}
}

func TestANameAloneIsTheOnlyVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, manifest("a", "1"), map[string]string{"bin/a": "x"})
	put(t, dir, manifest("b", "1"), map[string]string{"bin/b": "x"})
	put(t, dir, manifest("b", "2"), map[string]string{"bin/b": "x"})
	for _, id := range []string{"a", "a@1"} {
		if b, err := bundle.Find(dir, id); err != nil || b.ID() != "a@1" {
			t.Errorf("%s: got %s, %v; want a@1", id, b.ID(), err)
		}
	}
	for id, want := range map[string]string{"b": "b@1, b@2", "c": "no version", "a@2": "berth agent bundle a@2", "b/..": "write NAME"} {
		if _, err := bundle.Find(dir, id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v; want %q", id, err, want)
		}
	}
}

func TestABundleThatIsMissingSaysWhatToDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := bundle.Open(dir, "a", "1")
	if !errors.Is(err, bundle.ErrMissing) || !strings.Contains(err.Error(), "berth agent bundle a@1") {
		t.Errorf("got %v", err)
	}
	if _, err = bundle.Open("", "a", "1"); !errors.Is(err, bundle.ErrMissing) || !strings.Contains(err.Error(), "HOME") {
		t.Errorf("without a folder: %v", err)
	}
	if _, err = bundle.Open(dir, "../a", "1"); err == nil {
		t.Error("a name that leads out was taken")
	}
	foreign := manifest("b", "1")
	foreign.Arch = "pdp11"
	put(t, dir, foreign, map[string]string{"f": ""})
	if _, err = bundle.Open(dir, "b", "1"); err == nil || !strings.Contains(err.Error(), "pdp11") {
		t.Errorf("of another machine: %v", err)
	}
	old := manifest("c", "1")
	old.Format = 7
	put(t, dir, old, map[string]string{"f": ""})
	if _, err = bundle.Open(dir, "c", "1"); err == nil || !strings.Contains(err.Error(), "--again") {
		t.Errorf("of another version: %v", err)
	}
}

// What cannot be used is said, not left out.
func TestBrokenBundlesAreTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, manifest("good", "1"), map[string]string{"f": ""})
	half := put(t, dir, manifest("half", "1"), map[string]string{"f": ""})
	if err := errors.Join(os.WriteFile(filepath.Join(half, bundle.ManifestFile), []byte("{"), 0o644), os.MkdirAll(filepath.Join(dir, "notes"), 0o755),
		os.Rename(put(t, dir, manifest("moved", "1"), map[string]string{"f": ""}), filepath.Join(dir, "moved@2")), os.Mkdir(filepath.Join(dir, "empty@1"), 0o755)); err != nil {
		t.Fatal(err)
	}
	broken, err := bundle.Broken(dir)
	if err != nil || len(broken) != 3 {
		t.Errorf("broken %v, %v", broken, err)
	}
	for id, want := range map[string]string{"half@1": "unexpected end", "moved@2": "says that it is moved@1", "empty@1": "no such file"} {
		if broken[id] == nil || !strings.Contains(broken[id].Error(), want) || !strings.Contains(broken[id].Error(), "berth agent bundle "+id+" --again") {
			t.Errorf("%s: %v; want %q", id, broken[id], want)
		}
	}
	if list, err := bundle.List(dir); err != nil || len(list) != 1 {
		t.Errorf("list %v, %v", list, err)
	}
	if _, err := bundle.Open(dir, "moved", "2"); err == nil || !strings.Contains(err.Error(), "says that it is moved@1") {
		t.Errorf("opened under another name: %v", err)
	}
}

func TestNamesOfBundles(t *testing.T) {
	t.Parallel()
	for id, want := range map[string][2]string{"a": {"a", ""}, "a-b@1.2.3": {"a-b", "1.2.3"}, "a@1.0_rc+2": {"a", "1.0_rc+2"}} {
		if n, v, err := bundle.Parse(id); err != nil || n != want[0] || v != want[1] {
			t.Errorf("%s: got %q, %q, %v", id, n, v, err)
		}
	}
	for _, id := range []string{"", "@1", "a@", "a/b", "..", "-a", "a@../1", "a b"} {
		if _, _, err := bundle.Parse(id); err == nil {
			t.Errorf("%q was taken", id)
		}
	}
}

func TestTheFolderOfBundles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"HOME": "/h"}, "/h/.local/share/berth/bundles"},
		{map[string]string{"HOME": "/h", "XDG_DATA_HOME": "/d"}, "/d/berth/bundles"},
		{map[string]string{"HOME": "/h", bundle.EnvDir: "/x/y/"}, "/x/y"},
		{nil, ""},
	} {
		if got := bundle.Dir(func(n string) string { return tt.env[n] }); got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.env, got, tt.want)
		}
	}
}

func TestTheDigestIsOfNamesModesLinksAndContent(t *testing.T) {
	t.Parallel()
	build := func(change func(dir string) error) string {
		dir := t.TempDir()
		for _, err := range []error{
			os.Mkdir(filepath.Join(dir, "d"), 0o755), os.WriteFile(filepath.Join(dir, "d", "f"), []byte("text"), 0o644), os.Symlink("d/f", filepath.Join(dir, "l")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if change != nil {
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
		}
		s, err := bundle.Measure(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s.Digest
	}
	plain := build(nil)
	if again := build(func(dir string) error {
		return os.Chtimes(filepath.Join(dir, "d", "f"), time.Unix(1, 0), time.Unix(1, 0))
	}); again != plain {
		t.Errorf("times are in the digest")
	}
	seen := map[string]string{plain: "nothing"}
	for name, change := range map[string]func(dir string) error{
		"content": func(dir string) error { return os.WriteFile(filepath.Join(dir, "d", "f"), []byte("texu"), 0o644) },
		"mode":    func(dir string) error { return os.Chmod(filepath.Join(dir, "d", "f"), 0o755) },
		"name":    func(dir string) error { return os.Rename(filepath.Join(dir, "d", "f"), filepath.Join(dir, "d", "g")) },
		"folder":  func(dir string) error { return os.Mkdir(filepath.Join(dir, "e"), 0o755) },
		"link": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "l")), os.Symlink("d", filepath.Join(dir, "l")))
		},
	} {
		got := build(change)
		if other, ok := seen[got]; ok {
			t.Errorf("a change of %s has the digest of a change of %s", name, other)
		}
		seen[got] = name
	}
}

func TestAChangedBundleIsNoticed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder := put(t, dir, manifest("a", "1"), map[string]string{"f": "x"})
	b, err := bundle.Open(dir, "a", "1")
	if err != nil {
		t.Fatal(err)
	}
	s, err := bundle.Measure(filepath.Join(folder, bundle.Root))
	if err != nil {
		t.Fatal(err)
	}
	b.Digest = s.Digest
	if err = b.Verify(); err != nil {
		t.Errorf("unchanged: %v", err)
	}
	if err = os.WriteFile(filepath.Join(folder, bundle.Root, "f"), []byte("y"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err = b.Verify(); err == nil || !strings.Contains(err.Error(), "has been changed") {
		t.Errorf("changed: %v", err)
	}
}
