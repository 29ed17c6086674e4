package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/plugins/verifier"
)

// Whatever is recorded of a surface and an agent, the verdict has finite scores.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"kind":"act","stage":"main","reward":1,"action":"up"}`), []byte(`{"stage":"main","role":"agent","step":{"source":"agent"}}`))
	dir := f.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "attempt"), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, surface, steps []byte) {
		for name, b := range map[string][]byte{"surface.jsonl": surface, "steps.jsonl": steps} {
			if err := os.WriteFile(filepath.Join(dir, "attempt", name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		v, err := judge{}.Verify(t.Context(), verifier.Request{View: dir, Stage: "main"}, func(string) {})
		if err != nil {
			return
		}
		for name, s := range v.Scores {
			if err := s.Valid(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
