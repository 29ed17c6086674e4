package store_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/core/store"
)

// An agent chooses the names of artifacts. The list must still be the one that an
// audit computes again.
func TestChecksumsOfAnyNameSurviveJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"plain", "größe", "a\xffb", "a\xfeb", "\ufffd", `"quoted"`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	is, err := store.ChecksumsOf(dir)
	if err != nil || len(is.Files) != 6 {
		t.Fatalf("%v, %v", is, err)
	}
	b, err := json.Marshal(is)
	if err != nil {
		t.Fatal(err)
	}
	var was store.Checksums
	if err = json.Unmarshal(b, &was); err != nil || !maps.Equal(is.Files, was.Files) {
		t.Errorf("read back as %q, want %q; %v", was.Files, is.Files, err)
	}
}
