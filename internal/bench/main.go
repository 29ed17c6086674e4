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
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
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
		{"gateway", b.gateway},
		{"surfaces", b.surfaces},
		{"docker", func(ctx context.Context, f *figures) error {
			return b.engine(ctx, f, "docker", "/run/berth-engines/docker.sock")
		}},
		{"podman", func(ctx context.Context, f *figures) error {
			return b.engine(ctx, f, "podman", fmt.Sprintf("/run/user/%d/podman/podman.sock", os.Getuid()))
		}},
	}
	groups := map[string]string{"docker": "engines", "podman": "engines"}
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
	made    atomic.Int64
	figures figures
}

// quantile returns the quantile q (0…1) of times, which it sorts.
func quantile(times []time.Duration, q float64) time.Duration {
	slices.Sort(times)
	return times[min(len(times)-1, int(q*float64(len(times))))]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }
