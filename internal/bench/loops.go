package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/verifier"
)

// loops measures what a round of a closed loop costs besides the calls of its
// models, and how long 100 MiB of an agent's results take to copy, compared with
// tar in a sandbox like it.
func (b *bench) loops(ctx context.Context, f *figures) error {
	if err := b.roundCost(ctx, f); err != nil {
		return err
	}
	if err := b.copyCost(ctx, f); err != nil {
		return err
	}
	return b.manyLoops(ctx, f)
}

// The replies of the supervisor's and the user's model. The agent never has a
// result, so every round is judged and followed up.
const (
	judged = `replies:
  - when: {last: '.'}
    text: '{"verdict": "fail", "attempt_state": "complete_but_failed", "recoverable": true, "score": 0, "confidence": "high", "rationale": "There is no result.", "missing_artifacts": [], "guidance_tags": []}'
`
	asked = `replies:
  - when: {last: '.'}
    text: '{"mode": "instruction", "tone": "neutral", "candidate_feedback": "Please write the file.", "public_feedback_points": []}'
`
)

// closed writes an experiment with one task of the format uniclaw into a new
// folder, whose solution is the script. The attempts have that many follow-ups.
func (b *bench) closed(name, who, solution string, repeat, followUps int) (string, error) {
	dir := filepath.Join(b.dir, name)
	files := map[string]string{
		"berth.hcl": fmt.Sprintf(`experiment "bench" {
  datasets    = [dataset.bench]
  environment = environment.local
  agent       = agent.a
  repeat      = %d
  limits {
    in_flight = 1
  }
}
dataset "bench" {
  format = "uniclaw"
  path   = "."
  config {
    solutions = "solutions"
  }
}
environment "local" {
  plugin = "local"
}
agent "a" {
  plugin = %q
  oracle = %t
}
agent "persona" {
  plugin = "persona"
}
verifier "supervisor" {
  model = model.supervisor
}
user {
  agent = agent.persona
  model = model.user
}
model "supervisor" {
  provider = "script"
  script   = "./supervisor.yaml"
}
model "user" {
  provider = "script"
  script   = "./user.yaml"
}
`, repeat, who, who == "oracle"),
		"supervisor.yaml": judged,
		"user.yaml":       asked,
		"tasks/101_bench/t.yaml": fmt.Sprintf("task_id: t\ncategory: 101_bench\ntask: Write a file.\nreferences: [references/eval_rule.md]\ncodex:\n  max_user_followups: %d\n",
			followUps),
		"injection/101_bench/t/references/eval_rule.md": "# Rubric\n\n- There is a file. (1.00)\n",
		"solutions/101_bench/t/solve.sh":                "#!/bin/sh\nset -e\nmkdir -p /tmp_workspace/results\n" + solution,
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// roundCost measures the time between two turns of an agent, without the calls
// of models in it: the sandbox is frozen, looked at and thawed, a supervisor
// judges, a simulated user answers, and the answer is checked.
func (b *bench) roundCost(ctx context.Context, f *figures) error {
	const trials, followUps = 5, 10
	dir, err := b.closed("round", "nop", "", trials, followUps)
	if err != nil {
		return err
	}
	runs := filepath.Join(dir, "runs")
	if _, err = b.berth(ctx, "run", dir, "--runs", runs); err != nil {
		return err
	}
	var between, models []time.Duration
	err = ended(runs, func(folder string, r *record.Result) error {
		lines, failed := os.ReadFile(filepath.Join(folder, "model", "exchanges.jsonl"))
		if failed != nil {
			return failed
		}
		var last *record.Phase
		for i := range r.Phases {
			p := &r.Phases[i]
			if p.Name != record.PhaseTurn {
				continue
			}
			if last != nil {
				called, failed := callsWithin(lines, last.End, p.Start)
				if failed != nil {
					return failed
				}
				between, models = append(between, p.Start.Sub(last.End)-called), append(models, called)
			}
			last = p
		}
		return nil
	})
	if err == nil && len(between) != trials*followUps {
		err = fmt.Errorf("%d rounds, want %d", len(between), trials*followUps)
	}
	if err != nil {
		return err
	}
	f.add("a round beyond its model calls, p50", ms(quantile(between, 0.5)),
		fmt.Sprintf("the calls: %s; slowest of %d rounds: %s", ms(quantile(models, 0.5)), len(between), ms(slices.Max(between))), "", "≤ 60 ms")
	return nil
}

// callsWithin returns the sum of the calls of models that began in a period.
func callsWithin(lines []byte, from, to time.Time) (sum time.Duration, err error) {
	for line := range strings.Lines(string(lines)) {
		var e struct {
			Time time.Time     `json:"time"`
			Took time.Duration `json:"took_ns"`
		}
		if err = json.Unmarshal([]byte(line), &e); err != nil {
			return 0, err
		}
		if !e.Time.Before(from) && e.Time.Before(to) {
			sum += e.Took
		}
	}
	return sum, nil
}

// copyCost measures how long the copy of a round takes, compared with tar, which
// a shell in a sandbox runs, and whose output tar on the host unpacks.
func (b *bench) copyCost(ctx context.Context, f *figures) error {
	const trials, fill = 5, "for i in $(seq 100); do head -c 1048576 /dev/urandom > file$i; done\n"
	dir, err := b.closed("copy", "oracle", "cd /tmp_workspace/results\n"+fill, trials, 0)
	if err != nil {
		return err
	}
	runs := filepath.Join(dir, "runs")
	if _, err = b.berth(ctx, "run", dir, "--runs", runs); err != nil {
		return err
	}
	var ours, theirs []time.Duration
	if err = ended(runs, func(_ string, r *record.Result) error {
		for _, p := range r.Phases {
			if p.Name == record.PhaseCopy {
				ours = append(ours, p.End.Sub(p.Start))
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if len(ours) < trials {
		return fmt.Errorf("%d copies, want %d", len(ours), trials)
	}
	box, err := b.sandbox(ctx, "local")
	if err != nil {
		return err
	}
	defer box.close()
	made, err := box.shell.Exec(ctx, sandbox.Command{Argv: []string{"sh", "-c", "mkdir /tmp/results && cd /tmp/results\n" + fill}})
	if err != nil || !made.OK() {
		return fmt.Errorf("make the files: %+v, %w", made, err)
	}
	for i := range trials {
		took, err := box.untar(ctx, filepath.Join(b.dir, fmt.Sprint("untar", i)))
		if err != nil {
			return err
		}
		theirs = append(theirs, took)
	}
	p, q := quantile(ours, 0.5), quantile(theirs, 0.5)
	f.add("copy of 100 MiB of results in a round, p50", ms(p), "tar through a shell in the sandbox: "+ms(q), fmt.Sprintf("%.2f ×", float64(p)/float64(q)), "≤ 1.5 ×")
	return nil
}

// untar copies /tmp/results of the sandbox into a new folder, and returns how long
// that took.
func (m *made) untar(ctx context.Context, to string) (time.Duration, error) {
	if err := os.Mkdir(to, 0o755); err != nil {
		return 0, err
	}
	unpack := exec.CommandContext(ctx, "tar", "-C", to, "-xf", "-")
	in, err := unpack.StdinPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err = unpack.Start(); err != nil {
		return 0, err
	}
	r, err := m.shell.Exec(ctx, sandbox.Command{Argv: []string{"tar", "-C", "/tmp", "-cf", "-", "results"}, Stdout: in})
	if err = errors.Join(err, in.Close(), unpack.Wait()); err != nil || !r.OK() {
		return 0, fmt.Errorf("tar: %+v, %w", r, err)
	}
	return time.Since(began), nil
}

// ended calls do with the folder and the result of every attempt below a folder of
// runs.
func ended(runs string, do func(folder string, r *record.Result) error) error {
	files, err := filepath.Glob(filepath.Join(runs, "*", "trials", "*", "attempt-1", "result.json"))
	for _, file := range files {
		text, failed := os.ReadFile(file)
		if failed != nil {
			return failed
		}
		var r record.Result
		if err = json.Unmarshal(text, &r); err == nil {
			err = do(filepath.Dir(file), &r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return err
}

// manyLoops measures the memory of the core with 1,000 attempts in flight, each of
// which is in its third turn.
func (b *bench) manyLoops(ctx context.Context, f *figures) error {
	const many = 1000
	folder, err := b.sleeperPlugin()
	if err != nil {
		return err
	}
	var rss [2]int64 // KiB
	for i, n := range []int{1, many} {
		dir, err := b.experiment(fmt.Sprint("loops", n), looperName, min(n, 100), max(1, n/100), n)
		if err == nil {
			err = inALoop(dir)
		}
		if err != nil {
			return err
		}
		if rss[i], _, err = b.asleep(ctx, dir, sleepers{folder: folder, n: n, rounds: loopRounds}); err != nil {
			return fmt.Errorf("%d loops: %w", n, err)
		}
	}
	f.add("core's memory an attempt in flight, 1,000 loops in their third turn", fmt.Sprintf("%.2f MB", float64(rss[1]-rss[0])/1024/(many-1)),
		fmt.Sprintf("%d MB with 1 in flight, %d MB with %d", rss[0]>>10, rss[1]>>10, many), "", "≤ 1 MB")
	return nil
}

// inALoop changes an experiment of bench.experiment to a closed loop of looper.
func inALoop(dir string) error {
	file := filepath.Join(dir, "berth.hcl")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	hcl := string(text) + fmt.Sprintf("agent \"user\" {\n  plugin = %q\n}\nuser {\n  agent = agent.user\n}\n", looperName)
	if err = os.WriteFile(file, []byte(hcl), 0o600); err != nil {
		return err
	}
	tasks, err := filepath.Glob(filepath.Join(dir, "tasks", "*", "task.toml"))
	for _, task := range tasks {
		if text, err = os.ReadFile(task); err != nil {
			return err
		}
		toml := string(text) + fmt.Sprintf("[[metadata.berth.verifiers]]\nname = %q\n[metadata.berth.interaction]\nmax_follow_ups = %d\n", looperName, loopRounds)
		if err = os.WriteFile(task, []byte(toml), 0o600); err != nil {
			return err
		}
	}
	return err
}

// looperName is the name of an agent and of a verifier of the program that
// sleeperName names. loopRounds is how many turns of such an agent end before it
// sleeps.
const (
	looperName = "bench-looper"
	loopRounds = 2
)

// looper is an agent and its session, a user and a verifier: all of them want to
// go on, until the agent sleeps.
type looper struct{}

func (looper) Check(context.Context, agent.CheckRequest) (agent.Needs, error) {
	return agent.Needs{KeepsSession: true}, nil
}

func (looper) Open(_ context.Context, s agent.Setup) (agent.Session, error) {
	if s.Role == agent.RoleUser {
		return looper{}, nil
	}
	return loopTurns{}, nil
}

// Turn is that of the user.
func (looper) Turn(context.Context, agent.Message, agent.Recorder) (agent.Yield, error) {
	return agent.Yield{End: agent.Done, Message: "Go on."}, nil
}

func (looper) Close(context.Context, string, agent.Recorder) error { return nil }

func (looper) Verify(context.Context, verifier.Request, func(string)) (verifier.Verdict, error) {
	return verifier.Verdict{Decision: verifier.Continue, Scores: map[string]verifier.Score{"reward": {Value: 0}}}, nil
}

// loopTurns is a session of the agent.
type loopTurns struct{ sleeper }

func (s loopTurns) Turn(ctx context.Context, m agent.Message, r agent.Recorder) (agent.Yield, error) {
	if m.Turn > loopRounds {
		return s.sleeper.Turn(ctx, m, r)
	}
	return agent.Yield{End: agent.Done, Message: "I have begun."}, nil
}
