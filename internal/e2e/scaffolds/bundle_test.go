package scaffolds

import (
	"encoding/json"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// small writes a bundle of one program and returns the beginning of its digest.
func small(t *testing.T, dir, program string) string {
	t.Helper()
	folder := filepath.Join(dir, "tool@1")
	e2etest.Write(t, folder, map[string]string{"root/bin/tool": program})
	sum, err := bundle.Measure(filepath.Join(folder, bundle.Root))
	e2etest.Must(t, err)
	raw, err := json.Marshal(bundle.Manifest{
		Format: 1, Name: "tool", Version: "1", Arch: runtime.GOARCH, Digest: sum.Digest, Place: bundle.Place, Files: sum.Files, Bytes: sum.Bytes,
		Packages: []bundle.Package{},
	})
	e2etest.Must(t, err)
	e2etest.Write(t, folder, map[string]string{bundle.ManifestFile: string(raw)})
	return sum.Digest[:len("sha256:")+12] // as people are told of it
}

// If the bundle of a run was built again and differs, the run is resumed only
// if the user accepts it, and is marked then.
func TestAResumeWithAnotherBundleIsRefused(t *testing.T) {
	tree.NeedsSandbox(t)
	kept, dir := t.TempDir(), t.TempDir()
	t.Setenv(bundle.EnvDir, kept)
	before := small(t, kept, "#!/bin/sh\necho one > /app/done\n")
	s := scaffold{name: "tool", plugin: "cli", config: `bundle = "tool@1"
command = ["{bundle}/bin/tool"]`}
	s.lay(t, dir, map[string]ending{
		"good": {verify: "[ -e /app/done ]", replies: []string{reply(0, done)}}, "odd": {verify: "kill -9 $$"},
	})
	if code, _, stderr := tree.Berth(t, dir, "run"); code != 1 || !strings.Contains(stderr, "verifier") {
		t.Fatalf("exit code %d, want 1 for a verifier that breaks\n%s", code, stderr)
	}
	after := small(t, kept, "#!/bin/sh\necho two > /app/done\n")
	again := []string{"resume", "last", "--again", "verifier_error"}
	code, out, stderr := tree.Berth(t, dir, again...)
	if want := "bundle tool@1: " + before + " → " + after; code == 0 || !strings.Contains(stderr, want) || !strings.Contains(stderr, "--accept-drift") {
		t.Errorf("exit code %d, want a refusal that says %q\n%s\n%s", code, want, out, stderr)
	}
	code, out, stderr = tree.Berth(t, dir, append(again, "--accept-drift")...)
	if code != 1 {
		t.Errorf("with --accept-drift: exit code %d\n%s\n%s", code, out, stderr)
	}
	if _, out, _ = tree.Berth(t, dir, "show", "last", "--json"); !strings.Contains(out, after) {
		t.Errorf("the run is not marked: %s", out)
	}
}
