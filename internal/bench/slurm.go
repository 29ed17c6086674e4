package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// nodes is a cluster of scripts/slurm-for-tests.
type nodes struct{ script, shared string }

const nodesName = "bench"

func (n *nodes) run(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, n.script, append([]string{"--name", nodesName}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("slurm-for-tests %s: %w\n%s", args[0], err, tail(string(out)))
	}
	return string(out), err
}

// slurm measures 1,000 nop trials on three nodes with two pilots each, beside the
// same trials with executor local and as many in flight, in turn. All nodes are on
// this machine.
func (b *bench) slurm(ctx context.Context, f *figures) (err error) {
	n := &nodes{script: "scripts/slurm-for-tests"}
	if os.Getuid() != 0 {
		f.skipped = append(f.skipped, "pilots of Slurm: only root can start scripts/slurm-for-tests")
		return nil
	}
	if out, failed := n.run(ctx, "start"); failed != nil {
		f.skipped = append(f.skipped, "pilots of Slurm: "+tail(out))
		return nil
	}
	defer func() {
		_, failed := n.run(context.WithoutCancel(ctx), "stop")
		err = errors.Join(err, failed)
	}()
	out, err := n.run(ctx, "shared")
	if err != nil {
		return err
	}
	n.shared = strings.TrimSpace(out)
	if err = b.install(n.shared); err != nil {
		return err
	}
	const rounds = 3
	var here, there, ratios []float64
	busiest := 0
	for round := range rounds {
		alone, _, err := n.trials(ctx, b, fmt.Sprint("local", round), "")
		if err != nil {
			return err
		}
		piloted, commands, err := n.trials(ctx, b, fmt.Sprint("slurm", round), `executor "slurm" {
  workers   = 6
  time      = "1h"
  cpus      = 4
  in_flight = 2
  scratch   = "/srv/scratch"
}
`)
		if err != nil {
			return err
		}
		here, there, ratios = append(here, alone), append(there, piloted), append(ratios, piloted/alone)
		busiest = max(busiest, commands)
	}
	f.add("1,000 nop trials on three nodes, two pilots each, 12 in flight: trials/s", list(there, "%.1f"), "executor local, as many in flight: "+list(here, "%.1f"),
		list(ratios, "%.2f")+" of it", "≥ 0.8")
	f.add("commands of Slurm in the busiest minute of these runs", strconv.Itoa(busiest), "", "", "≤ 10")
	return nil
}

// install copies the programs that a nop trial needs.
func (b *bench) install(shared string) error {
	for _, name := range []string{"berth", "berth-sandboxd", "plugins/libexec/local-init", "plugins/berth-plugin-nop", "plugins/berth-plugin-local", "plugins/berth-plugin-script"} {
		to := filepath.Join(shared, "bin", name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := copyProgram(filepath.Join(b.bin, name), to); err != nil {
			return err
		}
	}
	return nil
}

// counted are commands of Slurm that write down when they were called.
const counted = `mkdir -p count
for c in sbatch squeue scancel; do
	printf '#!/bin/sh\ndate +%%s >> %s/calls\nexec /usr/bin/%s "$@"\n' "$PWD" "$c" > count/$c
	chmod 755 count/$c
done
PATH=$PWD/count:$PATH ../bin/berth run . --no-live`

// trials runs 1,000 nop trials, and returns how many ended a second, with the start
// and the end of the run, and how many commands of Slurm there were in the busiest
// minute.
func (n *nodes) trials(ctx context.Context, b *bench, name, executor string) (rate float64, commands int, err error) {
	const trials, flight = 1000, 12
	from, err := b.experiment(name, "nop", 10, trials/10, flight)
	if err != nil {
		return 0, 0, err
	}
	file := filepath.Join(from, "berth.hcl")
	hcl, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append(hcl, executor...), 0o644) //nolint:gosec // the bench's own folder
	}
	if err != nil {
		return 0, 0, err
	}
	user, err := n.run(ctx, "exec", "login", "--", "id", "-un")
	if err != nil {
		return 0, 0, err
	}
	dir := filepath.Join(n.shared, name)
	if err = os.CopyFS(dir, os.DirFS(from)); err == nil {
		err = exec.CommandContext(ctx, "chown", "-R", strings.TrimSpace(user), dir).Run()
	}
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if _, err = n.run(ctx, "exec", "login", "--", "sh", "-c", "cd "+dir+"\n"+counted); err != nil {
		return 0, 0, err
	}
	took := time.Since(began)
	runs, err := filepath.Glob(filepath.Join(dir, "runs", "*", "trials", "*", "attempt-1", "result.json"))
	if err == nil && len(runs) != trials {
		err = fmt.Errorf("%d of %d trials have a result", len(runs), trials)
	}
	calls, _ := os.ReadFile(filepath.Join(dir, "calls")) // a local run has none
	return trials / took.Seconds(), busiest(strings.Fields(string(calls))), err
}

// busiest returns how many of these seconds, in their order, are in one minute.
func busiest(seconds []string) (most int) {
	var times []int
	for _, s := range seconds {
		t, _ := strconv.Atoi(s) //nolint:errcheck // written by date
		times = append(times, t)
	}
	slices.Sort(times)
	for i, t := range times {
		n := 0
		for _, u := range times[i:] {
			if u < t+60 {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
