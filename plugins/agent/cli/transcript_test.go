package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/plugins/trajectory"
)

// steps keeps the steps that are recorded.
type steps []trajectory.Step

func (s *steps) Step(one trajectory.Step) error { *s = append(*s, one); return nil }
func (s *steps) Log(string) error               { return nil }
func (s *steps) Artifact(string) error          { return nil }

// A sub-agent in the background goes on after the result of its call, which
// refers to all of its steps.
func TestASubagentInTheBackgroundIsReferredTo(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{true, false} {
		var got steps
		dir := t.TempDir()
		b := newTranscript("m", "", dir)
		b.agent.Name, b.agent.Version = "tool", "1.2.3"
		b.begin(&got)
		b.Call("1", "c1", "Agent", json.RawMessage(`{}`))
		b.GoesOn("c1")
		b.Result("c1", "launched", false)
		b.Say("2", "going on")
		b.In("c1").Say("3", "inner")
		if ended {
			b.Ended("c1")
		}
		b.end()
		if want := map[bool]int{true: 2, false: 3}[ended]; len(got) != want {
			t.Fatalf("ended %v: %d steps, want %d: %+v", ended, len(got), want, got)
		}
		refs := got[0].Observation.Results[0].Subagents
		if len(refs) != 1 || refs[0].TrajectoryPath != "agent/subagents/c1.json" {
			t.Errorf("ended %v: references %+v", ended, refs)
		}
		raw, err := os.ReadFile(filepath.Join(dir, "subagents", "c1.json"))
		if err != nil {
			t.Fatal(err)
		}
		var sub trajectory.Trajectory
		if err := json.Unmarshal(raw, &sub); err != nil || len(sub.Steps) != 1 || sub.Steps[0].Message.Text != "inner" {
			t.Errorf("%v: %s", err, raw)
		}
		if sub.Agent.Name != "tool" || sub.Agent.Version != "1.2.3" {
			t.Errorf("the agent is %+v", sub.Agent)
		}
	}
}
