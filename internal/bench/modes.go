package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/record"
)

// modes measures what verification in a snapshot costs more than `restarted`,
// compared with the time of one sandbox creation: trials of one task in both modes,
// in turn, one at a time. The creation is that of the agent's sandbox in the same
// trials.
func (b *bench) modes(ctx context.Context, f *figures) error {
	for _, e := range []struct{ name, image, socket string }{
		{"local", "debian:bookworm-slim", ""},
		{"docker", engineImage, "/run/berth-engines/docker.sock"},
		{"podman", engineImage, fmt.Sprintf("/run/user/%d/podman/podman.sock", os.Getuid())},
	} {
		if _, err := os.Stat(e.socket); e.socket != "" && err != nil {
			f.skipped = append(f.skipped, fmt.Sprintf("modes on %s: no engine of this user: run scripts/engines-for-tests", e.name))
			continue
		}
		if err := b.modesOn(ctx, f, e.name, e.image, e.socket); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) modesOn(ctx context.Context, f *figures, name, image, socket string) error {
	const rounds, trials = 7, 5
	var wall, create [2][]time.Duration // restarted, snapshot
	for round := range rounds {
		for i, mode := range []string{"restarted", "snapshot"} {
			dir, err := b.experiment(fmt.Sprintf("modes-%s-%s-%d", name, mode, round), "oracle", 1, trials, 1)
			if err != nil {
				return err
			}
			if err = on(dir, name, image, socket, mode); err != nil {
				return err
			}
			runs := filepath.Join(dir, "runs")
			if _, err = b.berth(ctx, "run", dir, "--runs", runs); err != nil {
				return err
			}
			if err = attempts(runs, func(r *record.Result) {
				wall[i] = append(wall[i], r.End.Sub(r.Start))
				create[i] = append(create[i], phase(r, record.PhaseCreate))
			}); err != nil {
				return err
			}
		}
	}
	slow, quick, one := quantile(wall[1], 0.5), quantile(wall[0], 0.5), quantile(slices.Concat(create[0], create[1]), 0.5)
	f.add(name+": a trial in snapshot, beyond one in restarted", ms(slow-quick),
		fmt.Sprintf("%s and %s; one creation: %s", ms(slow), ms(quick), ms(one)),
		fmt.Sprintf("%.2f × one creation", float64(slow-quick)/float64(one)), "≤ 1.5 ×")
	return nil
}

// phase returns how long the phase of that name took that is of no stage.
func phase(r *record.Result, name record.PhaseName) time.Duration {
	for _, p := range r.Phases {
		if p.Name == name && p.Stage == "" {
			return p.End.Sub(p.Start)
		}
	}
	return 0
}

// on changes an experiment of bench.experiment to another environment and mode.
func on(dir, name, image, socket, mode string) error {
	file := filepath.Join(dir, "berth.hcl")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	config := ""
	if socket != "" {
		config = fmt.Sprintf("\n  config {\n    socket = %q\n  }", "unix://"+socket)
	}
	hcl := strings.Replace(string(text), `plugin = "local"`, fmt.Sprintf("plugin = %q", name)+config, 1)
	hcl = strings.Replace(hcl, "  repeat ", fmt.Sprintf("  verify      = %q\n  repeat ", mode), 1)
	if err = os.WriteFile(file, []byte(hcl), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "tasks", "t0", "environment", "Dockerfile"), []byte("FROM "+image+"\nWORKDIR /app\n"), 0o600)
}

// attempts calls do with every result below a folder of runs.
func attempts(runs string, do func(*record.Result)) error {
	found := 0
	err := ended(runs, func(folder string, r *record.Result) error {
		if r.Outcome != record.Passed {
			return fmt.Errorf("%s: %s, want passed: berth show says why", folder, r.Outcome)
		}
		found++
		do(r)
		return nil
	})
	if err == nil && found == 0 {
		return fmt.Errorf("no results below %s", runs)
	}
	return err
}
