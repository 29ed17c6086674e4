package engines

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// second is a task that is verified in a second sandbox, with its outcomes.
type second struct {
	tampering

	image, separate record.Outcome
}

// seconds are solutions of tasks that are verified in a second sandbox. In the
// agent's own sandbox all but "nothing" and "own-image" get the reward.
var seconds = []second{
	{tampering{name: "solved", solve: "echo 42 > /app/answer"}, record.Passed, record.Passed},
	{tampering{name: "nothing", solve: "echo 41 > /app/answer"}, record.Failed, record.Failed},
	{ // a process that waits for the tests and then writes the reward
		tampering{name: "left", test: late, solve: "echo 41 > /app/answer\nsetsid sh -c 'until [ -e /tests/test.sh ]; do sleep 0.05; done; while :; do " + forged +
			"; sleep 0.05; done' > /dev/null 2>&1 &"}, record.Failed, record.Failed,
	},
	{
		tampering{name: "mount", test: late, solve: "echo 41 > /app/answer\nmount -t tmpfs none /opt 2> /dev/null; echo 1 > /opt/mounted\n" +
			"setsid sh -c 'while :; do " + forged + "; sleep 0.05; done' > /dev/null 2>&1 &"}, record.Failed, record.Failed,
	},
	{ // a program of the image, which is the agent's only in its own sandbox
		tampering{name: "tool", solve: "echo 41 > /app/answer\n" + write("/usr/bin/cat", "#!/bin/sh\necho 42")}, record.Failed, record.Failed,
	},
	{
		tampering{
			name: "service", docker: `ENTRYPOINT ["/srv/serve"]`, test: late,
			files: map[string]string{"serve": "#!/bin/sh\nwhile :; do /srv/tick; sleep 0.05; done &\nexec \"$@\"\n", "tick": "#!/bin/sh\n"},
			solve: "echo 41 > /app/answer\n" + write("/srv/tick", "#!/bin/sh\n"+forged),
		}, record.Failed, record.Failed,
	},
	{ // an image of the verifier's own counts, although the task does not ask for it
		tampering{
			name: "own-image", verifier: "FROM debian:bookworm-slim\nENV OWN=yes\nCOPY . /tests/\n", solve: "echo 42 > /app/answer",
			test: "#!/bin/sh\n[ \"$OWN\" = yes ] && [ \"$(cat /app/answer)\" = 42 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n",
		}, record.Failed, record.Passed,
	},
}

// The same tasks have the same results in each environment. What an agent left
// in its sandbox does not decide the verdict.
func TestVerifiersInASecondSandbox(t *testing.T) {
	t.Parallel()
	for _, plugin := range []string{"local", "docker", "podman"} {
		for _, mode := range []string{"image", "separate"} {
			t.Run(plugin+" "+mode, func(t *testing.T) {
				t.Parallel()
				verifiedInSecond(t, plugin, mode)
			})
		}
	}
}

// separable writes such a task, with the answer as an artifact.
func (p *place) separable(a tampering) {
	p.test.Helper()
	p.tampered(a)
	file := filepath.Join("tasks", a.name, "task.toml")
	text, err := os.ReadFile(filepath.Join(p.dir, file))
	if err != nil {
		p.test.Fatal(err)
	}
	p.write(file, "artifacts = [\"/app/answer\"]\n"+string(text))
}

func verifiedInSecond(t *testing.T, plugin, mode string) {
	t.Helper()
	var env []string
	if plugin != "local" {
		env = append(env, machineFor(t, plugin, debian).env())
	}
	p := newPlace(t, env...)
	for _, a := range seconds {
		p.separable(a.tampering)
	}
	p.experiment(plugin, "", fmt.Sprintf("verify = %q", mode))
	p.berth(0, "run", ".")
	trials := p.show().Trials
	for _, a := range seconds {
		i := slices.IndexFunc(trials, func(tr output.ShowTrial) bool { return strings.TrimPrefix(tr.Task, "engines/") == a.name })
		if i < 0 {
			t.Fatalf("%s is missing", a.name)
		}
		want, integrity := a.separate, record.Checked
		if mode == "image" {
			want = a.image
		}
		r := e2etest.Result(t, trials[i].Attempts[0].Dir)
		if r.Outcome != want || r.Integrity != integrity || r.Mode != mode || r.Stages[0].VerifierImage == nil {
			t.Errorf("%s: %s, %s in %s: %+v %+v; want %s, %s", a.name, r.Outcome, r.Integrity, r.Mode, r.Findings, r.Error, want, integrity)
		}
	}
}
