package drift_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/drift"
)

func TestALockSaysWhichPluginsChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, locked, err := drift.ReadLock(dir); locked || err != nil {
		t.Fatalf("without a file: %t, %v", locked, err)
	}
	list := []drift.LockedPlugin{
		{Kind: "verifier", Name: "exact", Version: `1.0 "${x}"`, Digest: "sha256:2"}, {Kind: "agent", Name: "oracle", Digest: "sha256:1"},
	}
	path, err := drift.WriteLock(dir, list)
	if err != nil || path != filepath.Join(dir, "berth.lock.hcl") {
		t.Fatalf("%s, %v", path, err)
	}
	got, locked, err := drift.ReadLock(dir)
	if want := []drift.LockedPlugin{list[1], list[0]}; err != nil || !locked || !slices.Equal(got, want) {
		t.Fatalf("read %+v, %t, %v; want %+v", got, locked, err, want)
	}
	if changed := drift.ChangedPlugins(got, list); len(changed) > 0 {
		t.Errorf("nothing changed: %q", changed)
	}
	list[1].Digest, list[0].Name = "sha256:3", "other"
	changed := strings.Join(drift.ChangedPlugins(got, list), "\n")
	for _, want := range []string{`verifier "other" is not in berth.lock.hcl`, `agent "oracle" is sha256:3 (no version). Locked is sha256:1 (no version)`} {
		if !strings.Contains(changed, want) {
			t.Errorf("no %q in %s", want, changed)
		}
	}
	another := []drift.LockedPlugin{{Kind: "agent", Name: "oracle", Digest: "sha256:4"}, {Kind: "agent", Name: "nop", Digest: "sha256:5"}}
	if _, err = drift.WriteLock(dir, another); err != nil {
		t.Fatal(err)
	}
	got, _, err = drift.ReadLock(dir)
	if want := []drift.LockedPlugin{another[1], another[0], {Kind: "verifier", Name: "exact", Version: `1.0 "${x}"`, Digest: "sha256:2"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("with another experiment in the folder: %+v, %v; want %+v", got, err, want)
	}
	for _, damaged := range []string{"plugin {", "plugin \"agent\" \"x\" {}\n", "other = 1\n"} {
		if err = os.WriteFile(path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err = drift.ReadLock(dir); err == nil || !strings.Contains(err.Error(), "berth plugin lock") {
			t.Errorf("%q: %v; want an error that says what to do", damaged, err)
		}
	}
}
