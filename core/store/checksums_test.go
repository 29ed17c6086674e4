package store_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// Every file of an attempt has a checksum, and the journal has those of the
// list and of the result.
func TestTheFilesOfAnAttemptHaveChecksums(t *testing.T) {
	t.Parallel()
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r := create(t, 1)
	dir := r.Dir
	a, err := r.Begin(r.Manifest.Trials[0].ID)
	must(t, err)
	must(t, a.Append(record.EventsFile, map[string]int{"n": 1}))
	must(t, os.MkdirAll(filepath.Join(a.Dir(), "agent", "x"), 0o755))
	must(t, a.WriteFile("agent/x/log", []byte("hello")))
	must(t, os.Symlink("log", filepath.Join(a.Dir(), "agent", "x", "link")))
	must(t, a.Publish(result(r, 0, record.Passed)))
	must(t, r.Close())

	var sealed store.Checksums
	b, err := os.ReadFile(filepath.Join(a.Dir(), store.ChecksumsFile))
	must(t, err)
	must(t, json.Unmarshal(b, &sealed))
	want := map[string]string{
		"agent/x/log":     "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", // sha256sum of "hello"
		"agent/x/link":    "link:log",
		record.EventsFile: sealed.Files[record.EventsFile],
	}
	if len(sealed.Files) != len(want) || !strings.HasPrefix(want[record.EventsFile], "sha256:") {
		t.Errorf("sealed %v", sealed.Files)
	}
	for name, sum := range want {
		if sealed.Files[name] != sum {
			t.Errorf("%s has %q, want %q", name, sealed.Files[name], sum)
		}
	}
	journals, err := store.ReadJournals(dir)
	must(t, err)
	sums := map[string]string{}
	for _, e := range journals[0].Entries {
		for name, sum := range e.Sums {
			sums[name] = sum
		}
	}
	for name, file := range map[string]string{
		store.ChecksumsFile: filepath.Join(a.Dir(), store.ChecksumsFile), record.ResultFile: filepath.Join(a.Dir(), record.ResultFile),
		store.ManifestFile: filepath.Join(dir, store.ManifestFile),
	} {
		if sum, err := store.SumOf(file); err != nil || sums[name] != sum {
			t.Errorf("the journal says %q of %s, the file has %q, %v", sums[name], name, sum, err)
		}
	}
}
