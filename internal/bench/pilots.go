package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	executor "github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/core/store"
)

// pilotMode is the argument by which this program is a pilot that takes attempts
// and publishes results without making them. After it come the folder of the run,
// the name of the pilot, a folder for attempts that are under way, and how long each
// attempt takes.
const pilotMode = "-pilot"

// pilots is how many pilots there are.
const pilots = 200

// published makes attempts that pass after a while.
type published struct {
	pilot string
	takes time.Duration
}

func (p published) Attempt(ctx context.Context, j executor.Job) (record.Result, error) {
	began := time.Now().UTC()
	select {
	case <-time.After(p.takes):
	case <-ctx.Done():
		return record.Result{}, context.Cause(ctx)
	}
	err := j.Attempt.Append(record.StepsFile, map[string]string{"by": p.pilot})
	score := 1.0
	r := record.Result{
		Version: 1, Trial: j.Trial.ID, Task: j.Trial.Task, TaskDigest: j.Trial.TaskDigest, Repetition: j.Trial.Repetition, Attempt: j.Attempt.Number(),
		Outcome: record.Passed, AgentEnd: record.Yielded, Integrity: record.Checked, Mode: "live", Score: &score, Scores: map[string]float64{"reward": score},
		Phases: []record.Phase{}, Start: began, End: time.Now().UTC(), Host: "bench", Berth: "bench", Worker: &record.Worker{Pilot: p.pilot},
	}
	return r, errors.Join(err, j.Attempt.Publish(r))
}

// startPilot is a pilot.
func startPilot(ctx context.Context, args []string) error {
	dir, name, scratch := args[0], args[1], args[2]
	takes, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	s, err := store.View(dir)
	if err != nil {
		return err
	}
	p := &plan.Plan{Experiment: &experiment.Experiment{Cells: make([]*experiment.Cell, len(s.Manifest.Cells))}, Tasks: make([]plan.Task, 1)}
	for i := range p.Experiment.Cells {
		p.Experiment.Cells[i] = &experiment.Cell{}
	}
	for i := range s.Manifest.Trials {
		p.Trials = append(p.Trials, plan.Trial{Trial: s.Manifest.Trials[i]})
	}
	one, err := cluster.NewPilot(cluster.PilotOptions{
		Dir: dir, Plan: p, Identity: cluster.Identity{Worker: record.Worker{Pilot: name, Node: name}, InFlight: 1, Berth: "bench"},
	})
	if err != nil {
		return err
	}
	spec := executor.Spec{Plan: p, Limits: experiment.RunLimits{Places: experiment.Places{InFlight: new(1)}}}
	n := executor.NewNode(published{name, takes}, spec, filepath.Join(scratch, name, "berth", "attempts"))
	return one.Work(ctx, n)
}

// manyPilots measures a coordinator with 200 pilots and 10,000 trials that end at once.
func (b *bench) manyPilots(ctx context.Context, f *figures) error {
	if err := b.claims(ctx, f); err != nil {
		return err
	}
	return b.fleet(ctx, f, 10_000, 0)
}

// longAttempts measures a coordinator with 200 pilots and attempts of ten seconds.
func (b *bench) longAttempts(ctx context.Context, f *figures) error {
	return b.fleet(ctx, f, 2000, 10*time.Second)
}

// claims measures the claim of a free attempt, by the benchmark of its package.
func (b *bench) claims(ctx context.Context, f *figures) error {
	out, err := exec.CommandContext(ctx, "go", "test", "-vet=off", "-run=^$", "-bench=Claim", "-benchtime=20000x", "./core/run/cluster").CombinedOutput()
	if err != nil {
		return fmt.Errorf("the benchmark of claims: %w\n%s", err, out)
	}
	m := regexp.MustCompile(`([\d.]+) p50-ms\s+([\d.]+) p99-ms`).FindSubmatch(out)
	if m == nil {
		return fmt.Errorf("the benchmark of claims printed:\n%s", out)
	}
	f.add("claim of a free attempt on a local disk, p50", string(m[1])+" ms", "", "p99 "+string(m[2])+" ms", "≤ 5 ms")
	return nil
}

// flown is what a run of many pilots used.
type flown struct {
	used

	rate float64 // attempts a second, from the first claim to the last result
	disk traffic
}

// fleet measures the coordinator, and what a pilot does on the shared disk.
func (b *bench) fleet(ctx context.Context, f *figures, trials int, takes time.Duration) error {
	dir, err := b.experiment(fmt.Sprintf("pilots%d", trials), "nop", 100, trials/100, pilots)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "berth.hcl")
	hcl, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append(hcl, "executor \"pilots\" {}\n"...), 0o644) //nolint:gosec // the bench's own folder
	}
	if err != nil {
		return err
	}
	u, err := b.fly(ctx, dir, takes)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d pilots that only claim and publish, %d trials", pilots, trials)
	if takes > 0 {
		what += fmt.Sprintf(" of %s", takes)
	}
	f.add(what+": attempts a second", fmt.Sprintf("%.0f", u.rate), fmt.Sprintf("%.0f s in all", u.wall.Seconds()), "", "")
	share := 100 * u.cpu.Seconds() / u.wall.Seconds()
	f.add(what+": the coordinator", fmt.Sprintf("%.1f %% of a core, %d MB", share, u.rss>>10), fmt.Sprintf("%.1f ms of processor time an attempt", 1000*u.cpu.Seconds()/float64(trials)), "", "≤ 10 % of a core, ≤ 150 MB")
	if u.disk.attempts > 0 {
		f.add(what+": a pilot on the shared disk", fmt.Sprintf("%.0f calls on names an attempt", float64(u.disk.calls)/float64(u.disk.attempts)),
			fmt.Sprintf("one pilot of %d, with %d attempts, traced", pilots, u.disk.attempts), "", "printed")
	} else {
		f.skipped = append(f.skipped, "calls of a pilot on the shared disk: strace is not installed")
	}
	return nil
}

// fly carries out a run with pilots whose attempts take so long.
func (b *bench) fly(ctx context.Context, dir string, takes time.Duration) (u flown, err error) {
	self, err := os.Executable()
	if err != nil {
		return u, err
	}
	runs, scratch := filepath.Join(dir, "runs"), filepath.Join(dir, "scratch")
	if err = os.MkdirAll(scratch, 0o700); err != nil {
		return u, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type ended struct {
		u   used
		err error
	}
	done := make(chan ended, 1)
	go func() {
		u, failed := b.berth(ctx, "run", dir, "--runs", runs, "--no-live")
		done <- ended{u, failed}
	}()
	var folder string
	for end := time.Now().Add(time.Minute); folder == ""; time.Sleep(20 * time.Millisecond) {
		if m, _ := filepath.Glob(filepath.Join(runs, "*", cluster.Dir, "coordinators", "1.claim-0")); len(m) == 1 {
			folder = filepath.Dir(filepath.Dir(filepath.Dir(m[0])))
		} else if time.Now().After(end) {
			return u, errors.New("there is no coordinator")
		}
	}
	trace := filepath.Join(dir, "trace")
	fleet := make([]*exec.Cmd, pilots)
	for i := range fleet {
		argv := []string{self, pilotMode, folder, fmt.Sprintf("p%03d", i), scratch, takes.String()}
		if _, missing := exec.LookPath("strace"); i == 0 && missing == nil {
			argv = append([]string{"strace", "-f", "-qq", "-y", "-e", "trace=%file", "-o", trace}, argv...)
		}
		fleet[i] = exec.CommandContext(ctx, argv[0], argv[1:]...)
		fleet[i].Env = append(os.Environ(), "GOMAXPROCS=1", "GOMEMLIMIT=16MiB")
		fleet[i].Stderr = &bytes.Buffer{}
		if err = fleet[i].Start(); err != nil {
			return u, err
		}
	}
	e := <-done
	u.used = e.u
	for _, p := range fleet {
		if failed := p.Wait(); failed != nil && e.err == nil {
			return u, fmt.Errorf("a pilot: %w\n%s", failed, p.Stderr)
		}
	}
	if e.err != nil {
		return u, e.err
	}
	if u.rate, err = rateOf(folder); err != nil {
		return u, err
	}
	u.disk, err = trafficOf(trace, folder)
	return u, err
}

// rateOf checks that every trial has one attempt, which passed, and returns how many
// ended a second.
func rateOf(dir string) (float64, error) {
	_, x, err := store.Read(dir)
	if err != nil {
		return 0, err
	}
	var first, last time.Time
	for _, t := range x.Trials {
		if len(t.Attempts) != 1 || t.Outcome() != record.Passed {
			return 0, fmt.Errorf("trial %s has %d attempts and is %s", t.ID, len(t.Attempts), t.Outcome())
		}
		r := t.Attempts[0].Result
		if first.IsZero() || r.Start.Before(first) {
			first = r.Start
		}
		if r.End.After(last) {
			last = r.End
		}
	}
	return float64(len(x.Trials)) / last.Sub(first).Seconds(), nil
}

// traffic is what a pilot did on the shared disk.
type traffic struct{ attempts, calls int }

// trafficOf counts the calls on names below dir in what strace wrote about the first
// pilot.
func trafficOf(trace, dir string) (t traffic, err error) {
	b, err := os.ReadFile(trace)
	if errors.Is(err, os.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, dir) && !strings.Contains(line, "execve") {
			t.calls++
		}
	}
	journal, err := os.ReadFile(filepath.Join(dir, cluster.Dir, "pilots", "p000.jsonl"))
	t.attempts = bytes.Count(journal, []byte(`"kind":"published"`))
	return t, err
}
