package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
)

// stage is a surface that refuses what is called "no".
type stage struct {
	played []string
	err    error
}

func (s *stage) Act(_ context.Context, c environment.Call, _ []string) (environment.Step, error) {
	s.played = append(s.played, c.Name+string(c.Arguments))
	step := environment.Step{Observation: environment.Observation{Text: "saw " + c.Name}, Done: c.Name == "end"}
	if c.Name == "no" {
		step.Error = "not now"
	}
	return step, s.err
}

func TestTheSolutionIsPlayed(t *testing.T) {
	t.Parallel()
	s := &stage{}
	p := &player{on: s, calls: []environment.Call{{Name: "a", Arguments: json.RawMessage(`{"n":1}`)}, {Name: "no"}, {Name: "end"}, {Name: "later"}}}
	r := &recorder{}
	y, err := p.Turn(t.Context(), agent.Message{Turn: 1}, r)
	if err != nil || y.End != agent.Done || !strings.HasPrefix(y.Reason, "1 actions") {
		t.Errorf("got %+v, %v", y, err)
	}
	if got := strings.Join(s.played, " "); got != `a{"n":1} no end` {
		t.Errorf("played %s", got)
	}
	if len(r.steps) != 3 || r.steps[0].ToolCalls[0].Name != "a" || r.steps[1].Observation.Results[0].Content.Text != "refused: not now" {
		t.Errorf("steps %+v", r.steps)
	}
	s.err = environment.ErrNoSandbox
	if _, err = p.Turn(t.Context(), agent.Message{Turn: 1}, r); !errors.Is(err, environment.ErrNoSandbox) {
		t.Errorf("a surface that fails: %v", err)
	}
}

func TestActionsAreRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files map[string]string
		on    string
		n     int
		err   string
	}{
		"actions":           {files: map[string]string{"actions.jsonl": "{\"name\":\"a\"}\n{\"name\":\"b\",\"arguments\":{\"n\":1}}\n"}, on: "unix:/x", n: 2},
		"both":              {files: map[string]string{"actions.jsonl": "{\"name\":\"a\"}\n", "solve.sh": "true\n"}, on: "unix:/x"},
		"without a surface": {files: map[string]string{"actions.jsonl": "{\"name\":\"a\"}\n"}},
		"no JSON":           {files: map[string]string{"actions.jsonl": "{\"name\":\"a\"}\nclick\n"}, on: "unix:/x", err: "line 2"},
		"no name":           {files: map[string]string{"actions.jsonl": "{}\n"}, on: "unix:/x", err: "line 1"},
		"empty":             {files: map[string]string{"actions.jsonl": ""}, on: "unix:/x", err: "no action"},
		"nothing":           {on: "unix:/x", err: "actions.jsonl"},
	} {
		dir := t.TempDir()
		for file, text := range tt.files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		calls, err := actions(&agent.Setup{Surface: tt.on, Reference: &agent.Reference{Folder: dir}})
		if tt.err == "" && (err != nil || len(calls) != tt.n) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %+v, %v; want %d actions or %q", name, calls, err, tt.n, tt.err)
		}
	}
}
