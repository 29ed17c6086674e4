package drift_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/cmd/berth/internal/drift"
)

// A lock file is refused, or it is the same after it was written again.
func FuzzLock(f *testing.F) {
	f.Add([]byte("plugin \"agent\" \"a\" {\n  digest = \"sha256:1\"\n}\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, config.LockFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		list, _, err := drift.ReadLock(dir)
		if err != nil {
			return
		}
		if _, err = drift.WriteLock(dir, nil); err != nil {
			t.Fatal(err)
		}
		again, _, err := drift.ReadLock(dir)
		if err != nil || len(again) > len(list) {
			t.Fatalf("%d plugins became %d: %v", len(list), len(again), err)
		}
		if _, err = drift.WriteLock(dir, nil); err != nil {
			t.Fatal(err)
		}
		if last, _, err := drift.ReadLock(dir); err != nil || !reflect.DeepEqual(last, again) {
			t.Errorf("%+v became %+v: %v", again, last, err)
		}
	})
}
