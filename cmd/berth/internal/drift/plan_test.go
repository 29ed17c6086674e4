package drift_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/drift"
	"github.com/berth-eval/berth/core/store"
)

// manifest is a plan of two agents, each in a cell, that solve two tasks.
func manifest(limits, digest string, repeat int) *store.Manifest {
	m := &store.Manifest{}
	for i, agent := range []string{"a", "b"} {
		identity := json.RawMessage(`{"agent":{"plugin":"` + agent + `"},"per_trial":{` + limits + `}}`)
		m.Cells = append(m.Cells, store.Cell{Index: i, Key: "agent=" + agent, Identity: map[string]json.RawMessage{"d": identity}})
		for n := range repeat {
			for task, digest := range map[string]string{"one": "sha256:1", "two": digest} {
				m.Trials = append(m.Trials, store.Trial{
					ID: strings.Join([]string{string(identity), task, digest, string(rune('0' + n))}, " "), Task: task, TaskDigest: digest, Dataset: "d", Cell: i, Repetition: n + 1,
				})
			}
		}
	}
	return m
}

func lines(changes []drift.Change) (all []string) {
	for _, c := range changes {
		all = append(all, c.String())
	}
	return all
}

func TestChangesOfThePlanAreNamed(t *testing.T) {
	t.Parallel()
	before := manifest("", "sha256:2", 3)
	if d := drift.ChangedPlan(before, manifest("", "sha256:2", 3)); d != nil {
		t.Errorf("the same plan differs: %v", d)
	}
	got := lines(drift.ChangedPlan(before, manifest(`"agent_time_ns":420000000000`, "sha256:3", 2)))
	want := []string{
		"cell agent=a: per_trial.agent_time_ns: added 420000000000", "cell agent=b: per_trial.agent_time_ns: added 420000000000",
		"task d/two: content: sha256:2 → sha256:3", "repeat: 3 → 2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestChangesOfModelsAreNamed(t *testing.T) {
	t.Parallel()
	before, after := manifest("", "", 1), manifest("", "", 1)
	before.Cells[0].Models = map[string]store.Endpoint{"agent.default": {Address: "http://x"}}
	after.Cells[0].Models = map[string]store.Endpoint{"agent.default": {Address: "http://y"}}
	if d := drift.ChangedPlan(before, after); d != nil {
		t.Errorf("results differ: %v", d)
	}
	if got, want := lines(drift.ChangedModels(before, after)), []string{`cell agent=a: models.agent.default.address: "http://x" → "http://y"`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
