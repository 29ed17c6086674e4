package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m.Run, sandboxtest.Inside{})) }

// fixture runs the verifier with a test program in a real sandbox.
type fixture struct {
	*sandboxtest.Box

	t       *testing.T
	client  *sandbox.Client // that the verifier uses
	request verifier.Request
}

func newFixture(t *testing.T, program string) *fixture {
	t.Helper()
	settings, err := json.Marshal(task.Script{
		Command: []string{"sh", "-c", program},
		Rewards: []task.RewardFile{{Path: "/tmp/v/reward.json", Kind: "json"}, {Path: "/tmp/v/reward.txt", Kind: "number", Score: "reward"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := sandboxtest.Start(t, sandboxtest.Options{})
	r := &fixture{Box: b, t: t, client: b.ShellOf(host.Session{ID: "verifier", Grading: true}), request: verifier.Request{Settings: settings, Scratch: t.TempDir()}}
	r.sh("mkdir -p /tmp/v")
	return r
}

// sh runs a command as the agent.
func (r *fixture) sh(command string) {
	r.t.Helper()
	said := output.NewTail(1 << 10)
	result, err := r.Shell("agent").Exec(r.t.Context(), sandbox.Command{Argv: []string{"sh", "-c", command}, Stdout: said, Stderr: said})
	if err != nil || !result.OK() {
		r.t.Fatalf("%s: %+v, %v\n%s", command, result, err, said)
	}
}

func (r *fixture) verify(ctx context.Context) (verifier.Verdict, error) {
	r.t.Helper()
	return verify(ctx, r.client, r.request, func(line string) { r.t.Log(line) })
}

func TestInARealSandbox(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, before, program string
		score                 float64 // with an empty err
		err                   string
		findings              string
	}{
		{name: "an honest test", program: `echo 0.75 > /tmp/v/reward.txt; exit 3`, score: 0.75},
		{name: "no reward", program: `true`, err: "wrote none of"},
		{name: "NaN", program: `echo nan > /tmp/v/reward.txt`, err: "not a decimal"},
		{name: "a reward from before the tests", before: `echo 1 > /tmp/v/reward.txt`, program: `true`, err: "wrote none of"},
		{
			name: "a reward from before, and one of the tests", before: `echo '{"reward":1}' > /tmp/v/reward.json`,
			program: `echo 0 > /tmp/v/reward.txt`, score: 0, findings: "stale_reward",
		},
		{name: "a link", program: `echo 1 > /tmp/one; ln -s /tmp/one /tmp/v/reward.txt`, err: "not a regular file"},
		{name: "a link on the way", before: `rmdir /tmp/v; mkdir /tmp/w; ln -s /tmp/w /tmp/v`, program: `echo 1 > /tmp/v/reward.txt`, err: "not a regular file"},
		{name: "a pipe, which would block a reader", program: `mkfifo /tmp/v/reward.txt`, err: "not a regular file"},
		{name: "a folder", program: `mkdir /tmp/v/reward.json`, err: "not a regular file"},
		{name: "a huge file", program: `head -c 100000 /dev/zero > /tmp/v/reward.txt`, err: "more than 64 KiB"},
		{
			name: "two that differ", program: `echo 1 > /tmp/v/reward.txt; echo '{"reward":0.5}' > /tmp/v/reward.json`, score: 0.5,
			findings: "rewards_differ",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t, tt.program)
			if tt.before != "" {
				r.sh(tt.before)
			}
			v, err := r.verify(t.Context())
			if tt.err != "" {
				if !errors.Is(err, verifier.ErrBadReward) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %+v, %v; want no reward and %q", v.Scores, err, tt.err)
				}
				return
			}
			wantScores(t, v, err, map[string]float64{"reward": tt.score})
			if got := codes(v.Findings); got != tt.findings {
				t.Errorf("findings %+v, want %q", v.Findings, tt.findings)
			}
		})
	}
}

// Tests that cannot run count as failed for an agent, because it may have
// removed something that they need.
func TestTestsThatCannotStartCountAsFailed(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{
		"no program":             {"/nowhere/test.sh"},
		"none in PATH":           {"berth-has-no-such-program"},
		"no interpreter":         {"/tmp/v/test.sh"},
		"no interpreter, by sh":  {"sh", "-c", "/tmp/v/test.sh"},
		"not executable, by sh":  {"sh", "-c", "/tmp/v"},
		"none in PATH, by shell": {"sh", "-c", "berth-has-no-such-program"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t, "")
			r.sh("printf '#!/nowhere/bash\necho 1 > /tmp/v/reward.txt\n' > /tmp/v/test.sh; chmod 755 /tmp/v/test.sh")
			settings, err := settingsOf(r.request.Settings)
			if err != nil {
				t.Fatal(err)
			}
			settings.Command = command
			if r.request.Settings, err = json.Marshal(settings); err != nil {
				t.Fatal(err)
			}
			v, err := r.verify(t.Context())
			if err != nil || v.Decision != verifier.Fail || codes(v.Findings) != "tests_not_started" {
				t.Errorf("got %s, %+v, %v; want a fail with the finding tests_not_started", v.Decision, v.Findings, err)
			}
			if score, given := v.Scores["reward"]; !given || score.Value != 0 {
				t.Errorf("scores %v, want a reward of 0", v.Scores)
			}
		})
	}
}

func codes(findings []verifier.Finding) string {
	var list []string
	for _, f := range findings {
		list = append(list, f.Code)
	}
	return strings.Join(list, " ")
}

// A double fork leaves the process tree of the tests. A process that still
// writes after the tests is killed before the reward is read.
func TestADaemonOfTheTestsIsKilledBeforeTheReading(t *testing.T) {
	t.Parallel()
	r := newFixture(t, `setsid sh -c 'setsid sh -c "while :; do echo 1 > /tmp/v/late; done" &' >/dev/null 2>&1
until [ -e /tmp/v/late ]; do :; done; echo 0 > /tmp/v/reward.txt`)
	v, err := r.verify(t.Context())
	wantScores(t, v, err, map[string]float64{"reward": 0})
	if got := codes(v.Findings); got != "tests_left_running" {
		t.Errorf("findings %+v, want tests_left_running", v.Findings)
	}
	r.sh("rm -f /tmp/v/late; sleep 0.2; ! [ -e /tmp/v/late ]")
}

// A large amount of output fills neither memory nor disk, and the reward
// counts.
func TestAFloodOfOutputIsCut(t *testing.T) {
	t.Parallel()
	r := newFixture(t, `head -c 200000000 /dev/zero | tr '\0' x; echo the end; echo 1 > /tmp/v/reward.txt`)
	v, err := r.verify(t.Context())
	if err != nil || v.Scores["reward"].Value != 1 || !strings.HasSuffix(strings.TrimSpace(v.Rationale), "the end") {
		t.Errorf("got %v, %v; rationale ends with %.50q", v.Scores, err, v.Rationale[max(0, len(v.Rationale)-50):])
	}
	info, err := os.Stat(filepath.Join(r.request.Scratch, outputFile))
	if err != nil || info.Size() > output.DefaultHead+output.DefaultTail+100 {
		t.Errorf("%s has %v bytes, %v", outputFile, info.Size(), err)
	}
}

func TestATestThatHangsEndsWithItsTime(t *testing.T) {
	t.Parallel()
	r := newFixture(t, `echo begun; sleep 1000`)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := r.verify(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the end of its time", err)
	}
	if got, bad := os.ReadFile(filepath.Join(r.request.Scratch, outputFile)); bad != nil || string(got) != "begun\n" {
		t.Errorf("%s = %q, %v; want what it printed until then", outputFile, got, bad)
	}
}
