package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// scale measures planning, resuming and showing 10,000 trials.
func (b *bench) scale(ctx context.Context, f *figures) error {
	const trials = 10_000
	dir, err := b.experiment("scale", "oracle", 100, trials/100, 4)
	if err != nil {
		return err
	}
	u, err := b.berth(ctx, "plan", dir)
	if err != nil {
		return err
	}
	f.add("plan of 10,000 trials", took(u), busy(u), "", "< 1 s, < 200 MB")
	run, err := b.finished(ctx, dir, publish)
	if err != nil {
		return err
	}
	if u, err = b.berth(ctx, "resume", run); err != nil {
		return err
	}
	f.add("resume of 10,000 finished trials: nothing to do", took(u), busy(u), "", "< 2 s, < 200 MB")
	if u, err = b.berth(ctx, "show", run); err != nil {
		return err
	}
	f.add("summary of 10,000 trials", took(u), busy(u), "", "< 2 s, < 200 MB")
	return b.tables(ctx, f)
}

// took is the time that a command took, and its memory.
func took(u used) string { return fmt.Sprintf("%.2f s, %d MB", u.wall.Seconds(), u.rss>>10) }

// busy is the part of the time that does not depend on what else runs.
func busy(u used) string { return fmt.Sprintf("%.2f s of processor time", u.cpu.Seconds()) }

// tables measures the numbers of 10,000 trials in 40 cells.
func (b *bench) tables(ctx context.Context, f *figures) error {
	const cells, tasks, repetitions = 40, 50, 5
	dir, err := b.experiment("tables", "oracle", tasks, repetitions, 4)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "berth.hcl")
	hcl, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var minutes []string
	for i := range cells {
		minutes = append(minutes, fmt.Sprintf("\"%dm\"", i+1))
	}
	matrix := "  matrix {\n    time = [" + strings.Join(minutes, ", ") + "]\n  }\n  per_trial {\n    agent_time = matrix.time\n  }\n  limits {"
	if err = os.WriteFile(file, []byte(strings.Replace(string(hcl), "  limits {", matrix, 1)), 0o644); err != nil { //nolint:gosec // the bench's own folder
		return err
	}
	run, err := b.finished(ctx, dir, publish)
	if err != nil {
		return err
	}
	for _, m := range []struct {
		what, target string
		args         []string
	}{
		{"show of 10,000 trials in 40 cells", "< 1 s", []string{"show", run}},
		{"show --by of 10,000 trials in 40 cells", "< 1 s", []string{"show", run, "--by", "cell", "--force"}},
		{"compare of all 780 pairs of 40 cells, 10,000 permutations", "< 10 s", []string{"compare", run, "--force"}},
		{"report of 10,000 trials in 40 cells", "< 5 s, < 300 MB", []string{"report", run, "--force", "-o", filepath.Join(b.dir, "report.html")}},
		{"export of 10,000 trials to Parquet", "", []string{"export", run, "--to", "parquet", "-o", filepath.Join(b.dir, "attempts.parquet")}},
	} {
		u, err := b.berth(ctx, m.args...)
		if err != nil {
			return err
		}
		f.add(m.what, took(u), busy(u), "", m.target)
	}
	return nil
}

// finished makes a run of the experiment in dir in which every trial has a
// result, although none was run: the program begins the run and is interrupted,
// and this function writes the results with publish.
func (b *bench) finished(ctx context.Context, dir string, publish func(s *store.Run, run string, t store.Trial) error) (string, error) {
	runs := filepath.Join(b.dir, filepath.Base(dir)+"-runs")
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "berth"), "run", dir, "--runs", runs)
	if err := cmd.Start(); err != nil {
		return "", err
	}
	var run string
	for deadline := time.Now().Add(20 * time.Second); run == ""; time.Sleep(10 * time.Millisecond) {
		if found, _ := filepath.Glob(filepath.Join(runs, "*", "trials", "*")); len(found) > 0 { // the manifest is there
			run = filepath.Dir(filepath.Dir(found[0]))
		} else if time.Now().After(deadline) {
			return "", fmt.Errorf("no trial began in %s", runs)
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		return "", err
	}
	_ = cmd.Wait() // 130: it was interrupted
	began := time.Now()
	s, err := store.Open(run, "bench", false)
	if err != nil {
		return "", err
	}
	header := s.Manifest.Header
	work := make(chan store.Trial)
	var all sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		all.Go(func() {
			for t := range work {
				if errs[i] == nil {
					errs[i] = publish(s, header.Run, t)
				}
			}
		})
	}
	before := s.Index()
	for i, t := range s.Manifest.Trials {
		if settled(before.Trials[i]) {
			continue
		}
		work <- t
	}
	close(work)
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return "", err
		}
	}
	fmt.Fprintf(os.Stderr, "wrote %d results in %.1f s\n", len(s.Manifest.Trials), time.Since(began).Seconds())
	return run, s.Close()
}

func settled(t *store.TrialState) bool {
	for _, a := range t.Attempts {
		if a.Result != nil && a.Result.Outcome.Final() {
			return true
		}
	}
	return false
}

func publish(s *store.Run, run string, t store.Trial) error {
	a, err := s.Begin(t.ID)
	if err != nil {
		return err
	}
	// Scores differ from trial to trial, as those of agents do.
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(t.ID)) // never fails
	score, now := float64(sum.Sum32()%2), time.Now().UTC()
	outcome := record.Failed
	if score == 1 {
		outcome = record.Passed
	}
	return a.Publish(record.Result{
		Version: 1, Run: run, Trial: t.ID, Task: t.Task, TaskDigest: t.TaskDigest, Repetition: t.Repetition, Attempt: a.Number(),
		Outcome: outcome, AgentEnd: record.Yielded, Integrity: record.Checked, Mode: "live", Score: &score,
		Scores: map[string]float64{"reward": score}, Phases: []record.Phase{}, Start: now, End: now, Host: strings.Repeat("h", 8), Berth: "bench",
	})
}
