package store_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/testlevel"
)

// An agent chooses the names of artifacts. The list must still be the one that an
// audit computes again.
func TestChecksumsOfAnyNameSurviveJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"plain", "größe", "a\xffb", "a\xfeb", "\ufffd", `"quoted"`} {
		testlevel.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	is, err := store.ChecksumsOf(dir)
	if err != nil || len(is.Files) != 6 {
		t.Fatalf("%v, %v", is, err)
	}
	b, err := json.Marshal(is)
	testlevel.Must(t, err)
	var was store.Checksums
	if err = json.Unmarshal(b, &was); err != nil || !maps.Equal(is.Files, was.Files) {
		t.Errorf("read back as %q, want %q; %v", was.Files, is.Files, err)
	}
}

// A writer that is killed after its result has its name leaves what it copied from.
func TestWhatAKilledWriterLeftIsNotListed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"steps.jsonl", ".worker.part/result.json", ".settled.part", "artifacts/.mine.part"} {
		file := filepath.Join(dir, name)
		testlevel.Must(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, nil, 0o600)))
	}
	is, err := store.ChecksumsOf(dir)
	if got := slices.Sorted(maps.Keys(is.Files)); err != nil || !slices.Equal(got, []string{"artifacts/.mine.part", "steps.jsonl"}) {
		t.Errorf("listed %q, %v", got, err)
	}
}
