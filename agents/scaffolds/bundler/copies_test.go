package bundler_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/berth-eval/berth/agents/scaffolds/bundler"
	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// madeBundle writes a bundle with one program, and returns it.
func madeBundle(t *testing.T, dir, name, program string) bundle.Bundle {
	t.Helper()
	folder := filepath.Join(dir, name+"@1.0")
	root := filepath.Join(folder, bundle.Root)
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(root, "program"), []byte(program), 0o755),
		os.WriteFile(filepath.Join(root, "data"), []byte("data"), 0o600),
		os.Symlink("../program", filepath.Join(root, "bin", name))); err != nil {
		t.Fatal(err)
	}
	sum, err := bundle.Measure(root)
	if err != nil {
		t.Fatal(err)
	}
	m := bundle.Manifest{Format: 1, Name: name, Version: "1.0", Arch: runtime.GOARCH, Digest: sum.Digest, Place: bundle.Place, Files: sum.Files, Bytes: sum.Bytes}
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err = os.WriteFile(filepath.Join(folder, bundle.ManifestFile), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	return bundle.Bundle{Manifest: m, Folder: folder}
}

func held(t *testing.T, dir string) *bundler.Copies {
	t.Helper()
	c, err := bundler.HoldCopies(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// program returns what the program of a copied bundle says.
func program(t *testing.T, dir string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "a@1.0", bundle.Root, "bin", "a"))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Pilots that start at the same moment share one copy, which is whole, and does not
// need what it was copied from.
func TestCopiesOfBundlesAreShared(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "bundles")
	a, b := madeBundle(t, from, "a", "one"), madeBundle(t, from, "b", "two")
	dirs := make([]string, 4)
	var all sync.WaitGroup
	for i := range dirs {
		all.Go(func() {
			c, err := bundler.HoldCopies(context.WithoutCancel(t.Context()), to)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if dirs[i], err = c.Use(t.Context(), []bundle.Bundle{b, a}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(slices.Compact(dirs)) != 1 {
		t.Fatalf("folders: %q", dirs)
	}
	if err := os.RemoveAll(from); err != nil {
		t.Fatal(err)
	}
	there, err := bundle.List(dirs[0])
	if err != nil || len(there) != 2 {
		t.Fatalf("%+v, %v", there, err)
	}
	for _, one := range there {
		if err = one.Verify(); err != nil {
			t.Error(err)
		}
	}
	if got := program(t, dirs[0]); got != "one" {
		t.Errorf("program: %q", got)
	}
	whole, err := filepath.Glob(filepath.Join(to, "sha256-*", "[ab]@1.0"))
	if err != nil || len(whole) != 2 {
		t.Errorf("copies: %q, %v", whole, err)
	}
	work, err := filepath.Glob(filepath.Join(to, "*", ".making*"))
	if err != nil || len(work) != 0 {
		t.Errorf("left: %q, %v", work, err)
	}

	// A copy that was there is used, and one that was damaged is not.
	c := held(t, to)
	defer c.Close()
	if _, err = c.Use(t.Context(), []bundle.Bundle{a, b}); err != nil {
		t.Errorf("without what it was copied from: %v", err)
	}
	if err = os.WriteFile(filepath.Join(dirs[0], "a@1.0", bundle.Root, "program"), []byte("evil"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err = c.Use(t.Context(), []bundle.Bundle{a, b}); err == nil {
		t.Error("a damaged copy is used")
	}
	madeBundle(t, from, "a", "one")
	if _, err = c.Use(t.Context(), []bundle.Bundle{a, b}); err != nil || program(t, dirs[0]) != "one" {
		t.Errorf("a damaged copy is not replaced: %v", err)
	}
}

// Bundles of one name with different content do not disturb each other.
func TestCopiesOfBundlesAreNamedByTheirDigest(t *testing.T) {
	t.Parallel()
	to := filepath.Join(t.TempDir(), "bundles")
	c := held(t, to)
	defer c.Close()
	one, err := c.Use(t.Context(), []bundle.Bundle{madeBundle(t, t.TempDir(), "a", "one")})
	if err != nil {
		t.Fatal(err)
	}
	two, err := c.Use(t.Context(), []bundle.Bundle{madeBundle(t, t.TempDir(), "a", "two")})
	if err != nil {
		t.Fatal(err)
	}
	if program(t, one) != "one" || program(t, two) != "two" {
		t.Errorf("%s, %s", program(t, one), program(t, two))
	}
}

func TestBundlesThatAreNotCopied(t *testing.T) {
	t.Parallel()
	changed := madeBundle(t, t.TempDir(), "a", "one")
	if err := os.WriteFile(filepath.Join(changed.Folder, bundle.Root, "data"), []byte("more"), 0o600); err != nil {
		t.Fatal(err)
	}
	odd := madeBundle(t, t.TempDir(), "a", "one")
	odd.Digest = "sha256:../../x"
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, c := range []struct {
		ctx  context.Context
		b    bundle.Bundle
		says string
	}{
		{t.Context(), changed, "has been changed"},
		{t.Context(), odd, "no digest"},
		{stopped, madeBundle(t, t.TempDir(), "a", "one"), context.Canceled.Error()},
	} {
		to := filepath.Join(t.TempDir(), "bundles")
		h := held(t, to)
		_, err := h.Use(c.ctx, []bundle.Bundle{c.b})
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "a@1.0") {
			t.Errorf("%v, want %q", err, c.says)
		}
		if whole, bad := filepath.Glob(filepath.Join(to, "*", "a@1.0")); bad != nil || len(whole) > 0 {
			t.Errorf("%s: there is %q", c.says, whole)
		}
		if err = h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Copies stay as long as somebody uses them.
func TestUnusedCopiesOfBundlesAreRemoved(t *testing.T) {
	t.Parallel()
	to := filepath.Join(t.TempDir(), "bundles")
	c := held(t, to)
	dir, err := c.Use(t.Context(), []bundle.Bundle{madeBundle(t, t.TempDir(), "a", "one")})
	if err != nil {
		t.Fatal(err)
	}
	left, err := bundler.SweepCopies(to, false)
	if err != nil || len(left) > 0 || program(t, dir) != "one" {
		t.Fatalf("of a living user: %q, %v", left, err)
	}
	if err = c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		left, err = bundler.SweepCopies(to, dry)
		if err != nil || !slices.Equal(left, []string{to}) {
			t.Errorf("dry %v: %q, %v", dry, left, err)
		}
		if _, err = os.Stat(to); dry != (err == nil) {
			t.Errorf("dry %v: %v", dry, err)
		}
	}
	if left, err = bundler.SweepCopies(to, false); err != nil || len(left) > 0 {
		t.Errorf("nothing is there: %q, %v", left, err)
	}
}
