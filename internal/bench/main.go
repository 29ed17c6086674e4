// Command bench prints Berth's performance figures, each measured in the same
// run as the figure that it is compared with: `make bench`. Absolute times are
// for information; machines differ and are shared.
//
// It measures the built programs from outside where possible, and asserts
// nothing.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/berth-eval/berth/plugins"
)

// row is one figure.
type row struct{ what, got, with, holds, wanted string }

// figures collects rows, and the names of measurements that were skipped.
type figures struct {
	rows    []row
	skipped []string
}

func (f *figures) add(what, got, with, holds, wanted string) {
	f.rows = append(f.rows, row{what, got, with, holds, wanted})
	fmt.Fprintf(os.Stderr, "measured: %s: %s\n", what, got)
}

func main() {
	if filepath.Base(os.Args[0]) == plugins.ProgramPrefix+sleeperName {
		serveSleeper()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := run
	if len(os.Args) == 6 && os.Args[1] == pilotMode {
		do = func(ctx context.Context) error { return startPilot(ctx, os.Args[2:]) }
	}
	if slices.Equal(os.Args[1:], []string{handMode}) {
		do = startByHand
	}
	if err := do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	top, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	b := &bench{bin: filepath.Join(top, "bin")}
	if _, err = os.Stat(filepath.Join(b.bin, "berth")); err != nil {
		return fmt.Errorf("run it from the top of the tree, after make build: %w", err)
	}
	if b.dir, err = os.MkdirTemp("", "bb"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	only := os.Args[1:]
	type part struct {
		name string
		do   func(context.Context, *figures) error
	}
	parts := []part{
		{"plugin", b.pluginStart},
		{"command", b.commands},
		{"local", b.localTrials},
		{"core", b.coreCost},
		{"scale", b.scale},
		{"audit", b.audit},
		{"sleepers", b.sleepers},
		{"loops", b.loops},
		{"sokoban", b.sokoban},
		{"gateway", b.gateway},
		{"relay", b.relay},
		{"modes", b.modes},
		{"similarity", b.similarity},
		{"surfaces", b.surfaces},
		{"pilots", b.manyPilots},
		{"long", b.longAttempts},
		{"slurm", b.slurm},
		{"view", b.view},
		{"viewers", b.viewers},
		{"docker", func(ctx context.Context, f *figures) error {
			return b.engine(ctx, f, "docker", "/run/berth-engines/docker.sock")
		}},
		{"podman", func(ctx context.Context, f *figures) error {
			return b.engine(ctx, f, "podman", fmt.Sprintf("/run/user/%d/podman/podman.sock", os.Getuid()))
		}},
	}
	groups := map[string]string{"long": "pilots", "docker": "engines", "podman": "engines", "crowd": "scaffolds"}
	for _, p := range programs {
		parts = append(parts, part{p.name, func(ctx context.Context, f *figures) error { return b.firstRequest(ctx, f, p) }})
		groups[p.name] = "scaffolds"
	}
	parts = append(parts, part{"crowd", func(ctx context.Context, f *figures) error { return b.crowd(ctx, f, programs[0]) }})
	for _, name := range only {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name || groups[p.name] == name }) {
			return fmt.Errorf("there is no part %q: docs/benchmarks.md names them", name)
		}
	}
	for _, part := range parts {
		if len(only) > 0 && !slices.Contains(only, part.name) && !slices.Contains(only, groups[part.name]) {
			continue
		}
		if err := part.do(ctx, &b.figures); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tmeasured\tbeside it\tratio or margin\twanted")
	for _, r := range b.figures.rows {
		fmt.Fprintln(w, strings.Join([]string{r.what, r.got, r.with, r.holds, r.wanted}, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range b.figures.skipped {
		fmt.Fprintln(os.Stdout, "not measured:", s)
	}
	return nil
}

// bench is the state that the parts share.
type bench struct {
	bin     string // folder of the built programs
	dir     string // for everything temporary, short
	made    int    // sandboxes
	figures figures
}

// quantile returns the quantile q (0…1) of times, which it sorts.
func quantile(times []time.Duration, q float64) time.Duration {
	slices.Sort(times)
	return times[min(len(times)-1, int(q*float64(len(times))))]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }
