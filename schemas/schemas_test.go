package schemas_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/schemas"
)

// A type that was changed without its schema fails here: go generate ./schemas
// makes it again.
func TestSchemasAreThoseOfTheTypes(t *testing.T) {
	files, err := filepath.Glob("*.json")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("..")
	for _, s := range schemas.All() {
		want, err := s.JSON()
		if err != nil {
			t.Fatal(err)
		}
		name := s.Name + ".json"
		got, err := os.ReadFile(filepath.Join("schemas", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("schemas/%s is not that of its type (%v): run go generate ./schemas", name, err)
		}
		files = slices.DeleteFunc(files, func(f string) bool { return f == name })
	}
	if len(files) > 0 {
		t.Errorf("schemas of nothing: %q", files)
	}
}

// What only plugins read, or only other machines, is as its schema has it, too.
func TestWhatIsOutsideOfRunsIsAsItsSchema(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]any{
		"view-task": task.Task{
			Name: "a/b", Environment: task.Environment{Env: task.Env{"A": {Host: "B"}}},
			Stages: []task.Stage{{Name: "main", Instruction: []task.Part{{Text: "do"}}, Agent: task.Phase{Time: task.Duration(time.Minute)}, Verifiers: []task.VerifierUse{{Name: "script"}}}},
		},
		"bundle": bundle.Manifest{Format: 1, Name: "x", Packages: []bundle.Package{{From: "npm", Name: "x", Version: "1"}}},
	} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if err := schemas.Check(name, text); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}

// Every schema compiles, accepts what it must, and refuses a field that it does
// not know.
func TestSchemasJudge(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		schema, text, err string
	}{
		{"turn", `{"time":"2026-01-02T03:04:05Z","kind":"yield","stage":"main","turn":1}`, ""},
		{"turn", `{"time":"2026-01-02T03:04:05Z","kind":"yield","stage":"main"}`, "turn"},
		{"turn", `{"time":"2026-01-02T03:04:05Z","kind":"yield","stage":"main","turn":1,"secret":1}`, "secret"},
		{"turn", `{"time":"2026-01-02T03:04:05Z","kind":"yield","stage":"main","turn":"1"}`, "turn"},
		{"log-line", `{"time":"yesterday","from":"core","text":"x"}`, "date-time"},
	} {
		err := schemas.Check(tt.schema, []byte(tt.text))
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %s: %v, want %q", tt.schema, tt.text, err, tt.err)
		}
	}
	for _, s := range schemas.All() {
		if err := schemas.Check(s.Name, []byte(`"text"`)); err == nil {
			t.Errorf("schema %s takes anything", s.Name)
		}
	}
}

// TestManifestsOfArtifactsAreFound: those of each stage, but not a collected
// file of that name.
func TestManifestsOfArtifactsAreFound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, good, foreign string // below artifacts/
		bad                 string // that must be found
	}{
		{name: "one stage", good: "manifest.json", foreign: "app/manifest.json", bad: "manifest.json"},
		{name: "several stages", good: "first/manifest.json", foreign: "first/app/manifest.json", bad: "second/manifest.json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write := func(name, text string) {
				p := filepath.Join(dir, "trials", "t", "attempt-1", "artifacts", name)
				if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(tt.good, `[{"source":"/app","destination":"artifacts/app","status":"ok","exclude":[],"service":"main","type":"directory","files":1,"bytes":2}]`)
			write(tt.foreign, `{"name": "an extension of a browser"}`)
			if n, err := schemas.CheckRun(dir); n != 1 || err != nil {
				t.Errorf("%d checked: %v; want the one manifest", n, err)
			}
			write(tt.bad, `[{"source":7}]`)
			if _, err := schemas.CheckRun(dir); err == nil {
				t.Errorf("a wrong %s was not found", tt.bad)
			}
		})
	}
}
