package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/verifier"
)

// sleeperName is the name of an agent of the plugin that this program is when it is
// started as plugins.ProgramPrefix + sleeperName.
const sleeperName = "bench-sleeper"

func serveSleeper() {
	plugins.Serve(
		plugins.Agent(plugins.Info{Name: sleeperName, Version: "1.0.0", Doc: "Sleeps until its turn is cut off."}, nil, sleeper{}),
		plugins.Agent(plugins.Info{Name: looperName, Version: "1.0.0", Doc: "Sleeps in its third turn, or asks for more."}, nil, looper{}),
		plugins.Verifier(plugins.Info{Name: looperName, Version: "1.0.0", Doc: "Lets the user ask for more."}, nil,
			verifier.Traits{Needs: verifier.NeedsNone, Rounds: true}, looper{}),
	)
}

// sleeper is an agent and its session, which only sleeps.
type sleeper struct{}

func (sleeper) Check(context.Context, agent.CheckRequest) (agent.Needs, error) {
	return agent.Needs{}, nil
}

func (sleeper) Open(context.Context, agent.Setup) (agent.Session, error) { return sleeper{}, nil }

func (sleeper) Turn(ctx context.Context, _ agent.Message, _ agent.Recorder) (agent.Yield, error) {
	<-ctx.Done()
	return agent.Yield{}, ctx.Err()
}

func (sleeper) Close(context.Context, string, agent.Recorder) error { return nil }

// sleepers measures the memory of the core with 1,000 attempts in flight whose
// agents sleep, each in a sandbox of local, and how long `berth show` takes
// meanwhile. It is compared with one attempt in flight.
func (b *bench) sleepers(ctx context.Context, f *figures) error {
	const many = 1000
	folder, err := b.sleeperPlugin()
	if err != nil {
		return err
	}
	var rss [2]int64 // KiB
	var took []time.Duration
	var asked answers
	for i, n := range []int{1, many} {
		dir, err := b.experiment(fmt.Sprint("asleep", n), sleeperName, min(n, 100), max(1, n/100), n)
		if err != nil {
			return err
		}
		if rss[i], took, err = b.asleep(ctx, dir, sleepers{folder: folder, n: n, ask: &asked}); err != nil {
			return fmt.Errorf("%d sleepers: %w", n, err)
		}
	}
	f.add("core's memory an attempt in flight, 1,000 that sleep", fmt.Sprintf("%.2f MB", float64(rss[1]-rss[0])/1024/(many-1)),
		fmt.Sprintf("%d MB with 1 in flight, %d MB with %d", rss[0]>>10, rss[1]>>10, many), "", "≤ 1 MB")
	f.add("berth show meanwhile, p50", ms(quantile(took, 0.5)), "", "slowest of 9: "+ms(slices.Max(took)), "≤ 300 ms")
	asked.add(f)
	return nil
}

// sleeperPlugin installs this program as a plugin, and returns its folder.
func (b *bench) sleeperPlugin() (string, error) {
	folder := filepath.Join(b.dir, "plugins")
	program := filepath.Join(folder, plugins.ProgramPrefix+sleeperName)
	if _, err := os.Stat(program); err == nil {
		return folder, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if err = os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	return folder, copyProgram(self, program)
}

// sleepers are attempts whose agents sleep.
type sleepers struct {
	folder string   // of the plugin
	n      int      // how many
	rounds int      // that end before they sleep
	ask    *answers // of the run's socket; nil: it is not asked
}

// asleep starts a run of attempts at the same time, waits until all of their
// agents sleep, and returns the memory of the core in KiB and how long berth show
// took, nine times.
func (b *bench) asleep(ctx context.Context, dir string, s sleepers) (rss int64, took []time.Duration, err error) {
	runs := filepath.Join(dir, "runs")
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "berth"), "run", dir, "--runs", runs)
	cmd.Env = append(os.Environ(), "BERTH_PLUGIN_PATH="+s.folder)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err = cmd.Start(); err != nil {
		return 0, nil, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt) // the program removes the sandboxes
		if ended := <-done; err != nil {
			err = errors.Join(err, ended, errors.New(tail(said.String())))
		}
	}()
	run, err := b.allInTurn(ctx, runs, s)
	if err != nil {
		return 0, nil, err
	}
	var u used
	u.look(cmd.Process.Pid)
	for range 9 {
		var shown used
		if shown, err = b.berth(ctx, "show", run); err != nil {
			return 0, nil, err
		}
		took = append(took, shown.wall)
		u.look(cmd.Process.Pid)
	}
	if s.ask != nil {
		err = s.ask.measure(ctx, run)
	}
	return u.rss, took, err
}

// allInTurn waits until the agents of all attempts of the only run in runs sleep,
// and returns the folder of the run.
func (b *bench) allInTurn(ctx context.Context, runs string, s sleepers) (string, error) {
	const patience = 10 * time.Minute
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Second) {
		found, _ := filepath.Glob(filepath.Join(runs, "*", "trials")) // the pattern is valid
		if len(found) == 0 {
			continue
		}
		run := filepath.Dir(found[0])
		text, err := exec.CommandContext(ctx, filepath.Join(b.bin, "berth"), "show", run, "--json").Output()
		if err != nil {
			continue // the run has no manifest yet
		}
		var show output.ShowRun
		if err = json.Unmarshal(text, &show); err != nil {
			return "", err
		}
		turns := 0
		for i := range show.Trials {
			if r := show.Trials[i].Running; r != nil && r.Phase != nil && r.Phase.Name == record.PhaseTurn && r.Phase.Round == s.rounds {
				turns++
			}
			if o := show.Trials[i].Outcome; o != record.NotRun {
				return "", fmt.Errorf("a trial ended as %s", o)
			}
		}
		if turns == s.n {
			return run, nil
		}
	}
	return "", errors.New("not all agents began")
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
