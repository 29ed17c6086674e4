package trial_test

import (
	"context"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
)

// entered is an environment whose image has an entrypoint.
type entered struct {
	environment.Environment
	script string
}

func (e entered) Create(ctx context.Context, s environment.Spec) (environment.Sandbox, error) {
	made, err := e.Environment.Create(ctx, s)
	made.Image.Entrypoint = []string{"sh", "-c", e.script, "entrypoint"}
	return made, err
}

func TestTheAgentWaitsForTheEntrypoint(t *testing.T) {
	t.Parallel()
	const fork = "setsid sh -c 'sleep 600 & exit' & wait; " // a daemon of two forks, as of a desktop
	const asks = "python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:8000\")'"
	for _, tt := range []struct {
		name, script, agent, tests string
		mode                       task.Mode
		note                       string
	}{
		{
			"one that executes the command when it is ready", fork + `sleep 1; echo ready > /app/ready; exec "$@"`,
			"cat /app/ready && rm /app/ready", "true", task.ModeLive, "",
		},
		{"one that only executes the command", `exec "$@"`, "! pgrep -x sleep && echo alone > /app/alone", "cat /app/alone", task.ModeLive, ""},
		{
			"again before the tests", `sleep 1; echo ready > /app/ready; exec "$@"`,
			"rm /app/ready", "cat /app/ready", task.ModeRestarted, "",
		},
		{
			"one that is a server", "echo ready > /app/ready; exec python3 -m http.server --bind 127.0.0.1 8000",
			"cat /app/ready && " + asks, "true", task.ModeLive, "",
		},
		{
			"a daemon that listens a moment later", `(sleep 0.7; exec python3 -m http.server --bind 127.0.0.1 8000) & exec "$@"`,
			asks + " && echo got > /app/got", "cat /app/got", task.ModeLive, "",
		},
		{
			"and again before the tests", `(sleep 0.7; exec python3 -m http.server --bind 127.0.0.1 8000) & exec "$@"`,
			"true", asks, task.ModeRestarted, "",
		},
		{"one that fails", "echo no such display; exit 3", "true", "true", task.ModeLive, "exit code 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			needs(t, tt.script, tt.agent, tt.tests)
			b := newBench(t, does(tt.agent), tests(tt.tests))
			b.env = func(e environment.Environment) environment.Environment { return entered{e, tt.script} }
			b.task.Mode = tt.mode
			r := b.run(t.Context(), t)
			if r.Outcome != record.Passed || found(r, "left_running") {
				t.Errorf("got %s, %+v; want %s, with nothing left by the agent", r.Outcome, r.Findings, record.Passed)
			}
			if serves := strings.Contains(tt.script, "http.server") || strings.Contains(tt.script, fork); found(r, "service_traceable") != (serves && tt.mode == task.ModeLive) {
				t.Errorf("findings %+v", r.Findings)
			}
			noted := ""
			for _, f := range r.Findings {
				if f.Code == "entrypoint" {
					noted = f.Text
				}
			}
			if (tt.note == "") != (noted == "") || !strings.Contains(noted, tt.note) {
				t.Errorf("noted %q, want %q", noted, tt.note)
			}
		})
	}
}
