package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins/environment"
)

// sokoban measures what a step of a game costs: in the plugin, compared with
// gym-sokoban on the same level with pictures, and in the core.
func (b *bench) sokoban(ctx context.Context, f *figures) error {
	if err := b.sokobanSteps(ctx, f); err != nil {
		return err
	}
	return b.stepCost(ctx, f)
}

// sokobanLevel is of the usual size: 10 × 10 cells, 3 boxes.
const sokobanLevel = "##########/##########/#####   ##/#####  .##/#####   ##/#### $ .##/#### $$ ##/#### @. ##/##########/##########"

// randomMoves returns moves by their first letters in gym-sokoban's order.
func randomMoves(n int) string {
	dice := rand.New(rand.NewPCG(3, 3))
	moves := make([]byte, n)
	for i := range moves {
		moves[i] = "udlr"[dice.IntN(4)]
	}
	return string(moves)
}

func (b *bench) sokobanSteps(ctx context.Context, f *figures) error {
	const rounds, ours, theirs = 5, 10_000, 200
	h, err := plugin.New(plugin.Options{Dirs: []string{filepath.Join(b.bin, "plugins")}})
	if err != nil {
		return err
	}
	defer h.Stop()
	p, _, err := h.Environment(ctx, "sokoban")
	if err != nil {
		return err
	}
	game, ok := p.(environment.Surface)
	if !ok {
		return errors.New("the plugin sokoban has no surface")
	}
	id, err := game.OpenSurface(ctx, environment.SurfaceSpec{Frames: b.dir, Settings: json.RawMessage(`{"max_steps":1000000}`)})
	if err != nil {
		return err
	}
	defer func() { _ = game.CloseSurface(ctx, id) }()
	python := filepath.Join(filepath.Dir(b.bin), ".cache", "gym-sokoban", "bin", "python")
	if _, err = os.Stat(python); err != nil {
		f.skipped = append(f.skipped, "sokoban beside gym-sokoban: run scripts/gym-sokoban-for-tests")
		python = ""
	}
	var rates, inside, others []float64 // steps a second: through gRPC, in the plugin, in gym-sokoban
	for range rounds {
		rate, err := playRate(ctx, game, id, ours)
		if err != nil {
			return err
		}
		rates = append(rates, rate)
		if rate, err = insideRate(ctx); err != nil {
			return err
		}
		inside = append(inside, rate)
		if python == "" {
			continue
		}
		if rate, err = gymRate(ctx, python, theirs); err != nil {
			return err
		}
		others = append(others, rate)
	}
	for _, row := range []struct {
		what, wanted string
		ours         []float64
	}{
		{"sokoban: steps a second with pictures in the plugin, five rounds", "≥ 10 ×", inside},
		{"the same, each a call of the plugin through gRPC", "–", rates},
	} {
		with, holds := "", ""
		if python != "" {
			with, holds = "gym-sokoban with its pictures: "+list(others, "%.0f"), fmt.Sprintf("%.0f × in the worst round", worst(row.ours, others))
		}
		f.add(row.what, list(row.ours, "%.0f"), with, holds, row.wanted)
	}
	return nil
}

// playRate returns how many steps a second an open surface does.
func playRate(ctx context.Context, game environment.Surface, id string, steps int) (float64, error) {
	names := map[rune]string{'u': "Up", 'd': "Down", 'l': "Left", 'r': "Right"}
	want := []string{"image"}
	if _, err := game.Reset(ctx, id, environment.Start{Level: sokobanLevel, Want: want}); err != nil {
		return 0, err
	}
	began := time.Now()
	for _, m := range randomMoves(steps) {
		step, err := game.Act(ctx, id, environment.Call{Name: names[m]}, want)
		if err == nil && (step.Error != "" || len(step.Observation.Frames) != 1) {
			err = fmt.Errorf("a step without a picture: %s", step.Error)
		}
		if err != nil {
			return 0, err
		}
	}
	return float64(steps) / time.Since(began).Seconds(), nil
}

// insideRate returns how many steps a second the plugin does in its own process,
// from its Go benchmark.
func insideRate(ctx context.Context) (float64, error) {
	out, err := exec.CommandContext(ctx, "go", "test", "-vet=off", "-run", "^$", "-bench", "^BenchmarkSteps$", "-benchtime", "10000x", "./environments/sokoban").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("benchmark of the plugin: %w\n%s", err, tail(string(out)))
	}
	m := perStep.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("benchmark of the plugin printed no time: %s", tail(string(out)))
	}
	ns, err := strconv.ParseFloat(string(m[1]), 64)
	return float64(time.Second) / ns, err
}

var perStep = regexp.MustCompile(`BenchmarkSteps\S*\s+[0-9]+\s+([0-9.]+) ns/op`)

// gymRate returns how many steps a second gym-sokoban does, without its start.
func gymRate(ctx context.Context, python string, steps int) (float64, error) {
	level, err := json.Marshal(map[string]any{"level": sokobanLevel, "num_boxes": 3, "max_steps": 1_000_000, "actions": randomMoves(steps)})
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, python, "environments/sokoban/internal/room/testdata/play.py", "time")
	cmd.Stdin = bytes.NewReader(append(level, '\n'))
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("gym-sokoban: %w", err)
	}
	took, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	return float64(steps) / took, err
}

// worst is the smallest ratio of a round.
func worst(a, b []float64) float64 {
	least := a[0] / b[0]
	for i := range a {
		least = min(least, a[i]/b[i])
	}
	return least
}

// stepCost measures the processor time of the core for a step, by trials of 50
// random steps and trials of nop, in turn.
func (b *bench) stepCost(ctx context.Context, f *figures) error {
	const rounds, trials, steps = 3, 30, 50
	var cpu, wall [2][]time.Duration
	for round := range rounds {
		for i, who := range []string{"nop", "random"} {
			dir, err := b.sokobanTrials(fmt.Sprint("sokoban-", who, round), who, trials)
			if err != nil {
				return err
			}
			u, err := b.berth(ctx, "run", dir, "--runs", filepath.Join(dir, "runs"))
			if err != nil {
				return err
			}
			cpu[i], wall[i] = append(cpu[i], u.cpu), append(wall[i], u.wall)
		}
	}
	step := (slices.Min(cpu[1]) - slices.Min(cpu[0])) / (trials * steps)
	f.add("core's own processor time for a step with a picture, best of three rounds", ms(step), fmt.Sprintf("%d trials of %d steps, and as many of nop", trials, steps), "", "≤ 2 ms")
	acting, idle := slices.Min(wall[1]), slices.Min(wall[0])
	f.add("a trial of 50 random steps, mean of the best round", ms(acting/trials), "a trial of nop: "+ms(idle/trials), ms((acting-idle)/(trials*steps))+" more for each step", "–")
	return nil
}

// sokobanTrials writes an experiment with one level into a new folder.
func (b *bench) sokobanTrials(name, who string, trials int) (string, error) {
	dir := filepath.Join(b.dir, name)
	for file, text := range map[string]string{
		"levels/levels.txt": "; level\n" + strings.ReplaceAll(sokobanLevel, "/", "\n") + "\n",
		"berth.hcl": fmt.Sprintf(`experiment "bench" {
  datasets    = [dataset.bench]
  environment = environment.room
  agent       = agent.a
  repeat      = %d
  limits {
    in_flight = 1
  }
}
dataset "bench" {
  format = "sokoban"
  path   = "levels"
}
environment "room" {
  plugin  = "local"
  surface = "sokoban"
}
agent "a" {
  plugin = %q
}
`, trials, who),
	} {
		path := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return "", err
		}
	}
	return dir, nil
}
