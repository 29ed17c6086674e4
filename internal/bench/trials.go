package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/harbor"
)

func agentSetup(dir string) agent.Setup {
	return agent.Setup{Session: "bench", Role: agent.RoleAgent, View: dir, Scratch: dir}
}

// The two scripts of a trial that does almost nothing: the agent's and the
// test's.
const (
	work = "echo 42 > answer.txt\n"
	test = "mkdir -p /logs/verifier\nif [ \"$(cat answer.txt 2>/dev/null)\" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
)

// experiment writes tasks and an experiment with that many repetitions into a
// new folder, and returns the folder. The agent is "nop" or "oracle".
func (b *bench) experiment(name, who string, tasks, repeat, inFlight int) (string, error) {
	dir := filepath.Join(b.dir, name)
	files := map[string]string{"berth.hcl": fmt.Sprintf(`experiment "bench" {
  datasets    = [dataset.bench]
  environment = environment.local
  agent       = agent.a
  repeat      = %d
  limits {
    in_flight = %d
  }
}
dataset "bench" {
  format = "harbor"
  path   = "./tasks"
}
environment "local" {
  plugin = "local"
}
agent "a" {
  plugin = %q
  oracle = %t
}
`, repeat, inFlight, who, who == "oracle")}
	for i := range tasks {
		t := fmt.Sprintf("tasks/t%d/", i)
		files[t+"task.toml"] = fmt.Sprintf("schema_version = \"1.4\"\n[task]\nname = \"bench/t%d\"\n[environment]\nnetwork_mode = \"no-network\"\n", i)
		files[t+"instruction.md"] = "Write 42 into answer.txt.\n"
		files[t+"environment/Dockerfile"] = "FROM debian:bookworm-slim\nWORKDIR /app\n"
		files[t+"solution/solve.sh"] = "#!/bin/sh\n" + work
		files[t+"tests/test.sh"] = "#!/bin/sh\n" + test
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// used is what a finished program used.
type used struct {
	wall, cpu time.Duration
	rss       int64 // KiB, maximum
	out       string
}

// berth runs the built program and measures its own processor time and memory,
// without those of plugins and sandboxes.
func (b *bench) berth(ctx context.Context, args ...string) (u used, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "berth"), args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	if err = cmd.Start(); err != nil {
		return u, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		select {
		case err = <-done:
			tick.Stop()
			u.wall, u.out = time.Since(began), out.String()
			if err != nil {
				err = fmt.Errorf("berth %s: %w\n%s", strings.Join(args, " "), err, tail(u.out))
			}
			return u, err
		case <-tick.C:
			u.look(cmd.Process.Pid)
		}
	}
}

// look reads the program's own usage; the last values before its end count.
func (u *used) look(pid int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) > 21 {
		user, _ := strconv.ParseInt(fields[11], 10, 64)
		system, _ := strconv.ParseInt(fields[12], 10, 64)
		pages, _ := strconv.ParseInt(fields[21], 10, 64)
		u.cpu = time.Duration(user+system) * 10 * time.Millisecond
		u.rss = max(u.rss, pages*int64(os.Getpagesize()>>10))
	}
}

func tail(s string) string { return s[max(0, len(s)-2000):] }

// localTrials measures whole trials of nop per second on `local`, compared with
// bubblewrap running the tests, alternating, for five rounds.
func (b *bench) localTrials(ctx context.Context, f *figures) error {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		f.skipped = append(f.skipped, "trials on local beside bubblewrap: bubblewrap is not installed")
		return nil //nolint:nilerr // the other figures can be measured
	}
	const trials, flight, rounds = 200, 4, 5
	dir, err := b.experiment("local", "nop", 1, trials, flight)
	if err != nil {
		return err
	}
	args, err := bubble(ctx, filepath.Join(dir, "tasks", "t0"))
	if err != nil {
		return err
	}
	var ours, theirs, ratios []float64
	for round := range rounds {
		u, err := b.berth(ctx, "run", dir, "--runs", filepath.Join(b.dir, fmt.Sprint("local-runs", round)))
		if err != nil {
			return err
		}
		began := time.Now()
		if err := loop(trials, flight, func() error { return exec.CommandContext(ctx, bwrap, args...).Run() }); err != nil {
			return err
		}
		a, c := trials/u.wall.Seconds(), trials/time.Since(began).Seconds()
		ours, theirs, ratios = append(ours, a), append(theirs, c), append(ratios, a/c)
	}
	f.add("nop trials/s on local, 4 in flight, five rounds", list(ours, "%.0f"), "bubblewrap, the same commands: "+list(theirs, "%.0f"), list(ratios, "%.2f")+" of it", "≥ 0.25")
	return nil
}

// bubble returns bubblewrap's arguments for the commands of a trial of the
// task: with the same number of namespaces, and the same programs and
// arguments.
func bubble(ctx context.Context, dir string) ([]string, error) {
	t, problems, err := harbor.Format{}.Load(ctx, dir, task.Options{})
	if err != nil || t == nil {
		return nil, fmt.Errorf("load %s: %w %v", dir, err, problems)
	}
	var tests task.Script
	if err := json.Unmarshal(t.Stages[0].Verifiers[0].Settings, &tests); err != nil {
		return nil, err
	}
	args := []string{
		"--unshare-all", "--die-with-parent", "--uid", "0", "--gid", "0", "--ro-bind", "/usr", "/usr",
		"--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev",
		"--tmpfs", "/tmp", "--dir", "/app", "--chdir", "/app", "--ro-bind", filepath.Join(dir, "tests"), "/tests",
	}
	return append(args, tests.Command...), nil
}

func list(v []float64, format string) string {
	parts := make([]string, len(v))
	for i, x := range v {
		parts[i] = fmt.Sprintf(format, x)
	}
	return strings.Join(parts, " ")
}

// loop calls do n times, with the given concurrency.
func loop(n, flight int, do func() error) error {
	var left atomic.Int64
	left.Store(int64(n))
	errs := make([]error, flight)
	var all sync.WaitGroup
	for i := range flight {
		all.Go(func() {
			for left.Add(-1) >= 0 && errs[i] == nil {
				errs[i] = do()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// coreCost measures the processor time and memory of the core's own process.
func (b *bench) coreCost(ctx context.Context, f *figures) error {
	const few, many = 20, 320
	var at [2]used
	for i, n := range []int{few, many} {
		dir, err := b.experiment(fmt.Sprint("core", n), "oracle", 1, n, 4)
		if err != nil {
			return err
		}
		if at[i], err = b.berth(ctx, "run", dir, "--runs", filepath.Join(b.dir, fmt.Sprint("core-runs", n))); err != nil {
			return err
		}
	}
	each := (at[1].cpu - at[0].cpu) / (many - few)
	f.add("core's own processor time a trial", ms(each), "", fmt.Sprintf("%.0f trials/s on one core", float64(time.Second)/float64(each)), "≤ 10 ms, ≥ 150 trials/s")
	var rss [2]used
	const flight = 48
	for i, n := range []int{1, flight} {
		dir, err := b.experiment(fmt.Sprint("flight", n), "oracle", 1, 2*flight, n)
		if err != nil {
			return err
		}
		if rss[i], err = b.berth(ctx, "run", dir, "--runs", filepath.Join(b.dir, fmt.Sprint("flight-runs", n))); err != nil {
			return err
		}
	}
	f.add("core's memory a trial in flight", fmt.Sprintf("%.2f MB", float64(rss[1].rss-rss[0].rss)/1024/(flight-1)),
		fmt.Sprintf("%d MB with 1 in flight, %d MB with %d", rss[0].rss>>10, rss[1].rss>>10, flight), "", "≤ 1 MB")
	return nil
}
