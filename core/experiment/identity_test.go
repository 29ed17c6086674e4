package experiment_test

import (
	"encoding/json"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/task"
)

// Ids of trials are made of it, so it stays as it is from one version to the next.
func TestIdentityByHand(t *testing.T) {
	t.Parallel()
	half := 0.5
	key := &cell.Secret{Label: `${secret("KEY")}`}
	c := &experiment.Cell{
		Key: "agent=a", Slug: "a",
		Cell: cell.Cell{
			Agent: cell.Agent{
				Label: "a", Plugin: "loop", Env: map[string]cell.Text{"TOKEN": cell.Hidden(key)},
				Config: cell.NewValues(json.RawMessage(`{"turns": 12345678901234567890, "token": "${secret(\"KEY\")}", "a": "<&>"}`), map[config.Path]*cell.Secret{"token": key}),
			},
			Environment: cell.Environment{Label: "e", Plugin: "box", Config: cell.PlainValues(json.RawMessage("{}"))},
		},
	}
	d := &experiment.Dataset{Label: "d", Format: "lines", Path: "/tasks", Verify: task.ModeRestarted, Success: &task.Success{Score: "s", AtLeast: &half}}
	const want = `{"agent":{"config":{"secrets":["token"],"values":{"a":"<&>","token":"${secret(\"KEY\")}","turns":12345678901234567890}},` +
		`"env":{"TOKEN":{"secret":"${secret(\"KEY\")}"}},"plugin":"loop"},` +
		`"datasets":[{"success":{"at_least":0.5,"key":"s"},"verify":"restarted"}],` +
		`"environment":{"limits":{},"plugin":"box"},"per_trial":{}}`
	if got := string(c.Identity(d)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
