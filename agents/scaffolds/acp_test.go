package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/config"
)

// What real agents printed (internal/e2e/scaffolds -record) is read: Gemini CLI,
// Codex and Claude Code, as they speak the protocol.
func TestRecordedAgentsOfTheProtocolAreRead(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/acp/*.jsonl")
	if err != nil || len(files) != 21 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	for _, file := range files {
		name, what, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".jsonl"), ".")
		t.Run(name+"/"+what, func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c := ACP{Auth: map[string]string{"acp-gemini": "gemini-api-key", "acp-codex": "openai-api-key"}[name]}
			if name == "acp-gemini" {
				c.SetModel = "{model}"
			}
			r := &record{}
			run := &cli.Run{Settings: &cli.Settings{}, Turn: 1, Workdir: "/app", Message: "do it"}
			run.Model.Name = "gpt-5.5"
			y, _, err := cli.Replay(c.scaffold(), run, bytes.NewReader(b), cli.Exit{Result: exits[what]}, r)
			valid(t, r.steps)
			judgeACP(t, name, what, y, err, r)
		})
	}
}

func judgeACP(t *testing.T, name, what string, y agent.Yield, err error, r *record) {
	t.Helper()
	want := map[string]agent.End{"solve": agent.Done, "nobody": agent.Done, "crash": agent.Crashed, "deadline": agent.Crashed, "bad": agent.Crashed}[what]
	switch what {
	case "down":
		if !errors.Is(err, agent.ErrModel) || !strings.Contains(err.Error(), "scripted trouble") {
			t.Errorf("got %+v, %v; want that the model is down", y, err)
		}
		return
	case "refuse":
		want = map[string]agent.End{"acp-claude": agent.Refused}[name]
		if want == "" {
			want = agent.Done
		}
	}
	if err != nil || y.End != want {
		t.Errorf("got %+v, %v; want %s", y, err, want)
	}
	if what == "deadline" && (len(r.steps) == 0 || len(r.steps[0].ToolCalls) != 1) {
		t.Errorf("the call that was under way is lost: %+v", r.steps)
	}
	if what != "solve" {
		return
	}
	if len(r.steps) != 2 || len(r.steps[0].ToolCalls) != 1 || r.steps[0].Message.Text != "I write it." || r.steps[1].Message.Text != "finished solve" {
		t.Fatalf("steps %+v", r.steps)
	}
	if !strings.Contains(string(r.steps[0].ToolCalls[0].Arguments), "/app/done") {
		t.Errorf("arguments %s", r.steps[0].ToolCalls[0].Arguments)
	}
	// Gemini CLI tells nothing of what a command prints.
	if o := r.steps[0].Observation; o == nil || name != "acp-gemini" && !strings.Contains(o.Results[0].Content.Text, "MARK-solve") {
		t.Errorf("observation %+v", o)
	}
	if name == "acp-claude" && (y.Claim == nil || *y.Claim.Input != 200 || *y.Claim.Output != 20 || *y.Claim.Cached != 120) {
		t.Errorf("claim %+v", y.Claim)
	}
}

func TestAnAgentOfTheProtocolIsDeclared(t *testing.T) {
	t.Parallel()
	var c ACP
	raw := `{"command": ["{bundle}/bin/x", "{model}"], "bundle": "x@1", "dialects": ["openai"], "env": {"K": "{token}"}, "mode": "yolo", "set_model": "{model}",
		"options": {"effort": "{effort}"}, "permissions": {"default": "reject", "read": "allow"}, "file": {"a": {"text": "{url}"}}, "reasoning_effort": "high"}`
	if ps := config.Validate(json.RawMessage(raw), &c); len(ps) > 0 {
		t.Fatal(config.Problems(ps))
	}
	s := c.scaffold()
	if s.Name != "x" || s.Recipe.Version != "1" || !slices.Contains(s.Knobs, cli.Effort) || !slices.Contains(s.Knobs, cli.MCP) || slices.Contains(s.Knobs, cli.MaxTurns) {
		t.Errorf("scaffold %+v", s)
	}
	settings := c.Settings
	r := &cli.Run{Settings: &settings, URL: "http://h", Message: "do it"}
	r.Model.Name, r.Model.Token = "m", "tok"
	start, err := s.Start(r)
	if err != nil || strings.Join(start.Argv, " ") != cli.Bundle+"/bin/x m" || start.Env["K"] != "tok" || start.Files[0].Data != "http://h" || start.Stdin != "" {
		t.Errorf("start %+v, %v", start, err)
	}
	o := c.options()
	if is := o.Session(r); is.Mode != "yolo" || is.Model != "m" || is.Config["effort"] != "high" {
		t.Errorf("session %+v", is)
	}
	if o.Allow("execute") || !o.Allow("read") || !(&ACP{}).allows("execute") {
		t.Error("permissions are not those that were declared")
	}
	for raw, want := range map[string]string{
		`{"permissions": {"fly": "allow"}}`: "no such kind", `{"permissions": {"read": "maybe"}}`: "allow or reject", `{"bundle": "x"}`: "NAME@VERSION", `{"version": "1"}`: "version",
	} {
		var c ACP
		if ps := config.Validate(json.RawMessage(raw), &c); len(ps) == 0 || !strings.Contains(config.Problems(ps).Error(), want) {
			t.Errorf("%s: %v; want %q", raw, ps, want)
		}
	}
}
