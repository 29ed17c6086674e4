package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/model"
)

// program is a CLI that is measured.
type program struct {
	name    string
	dialect model.Dialect
	tool    string // its shell tool, and the parameter with the command
	arg     string
}

var programs = []program{
	{"claude-code", model.DialectAnthropic, "Bash", "command"},
	{"codex", model.DialectOpenAI, "exec_command", "cmd"},
	{"pi", model.DialectOpenAIChat, "bash", "command"},
}

// script is the script of its model: one call that solves the task, and a final
// message.
func (p program) script() string {
	const usage = "usage: {input: 100, output: 10}"
	return fmt.Sprintf("replies:\n  - {when: {turn: 0}, text: I write it., tools: [{name: %s, arguments: {%s: %q}}], %s}\n  - {when: {turn: 1}, text: done, %s}\n",
		p.tool, p.arg, strings.TrimSpace(work), usage, usage)
}

// lay writes an experiment with that many trials of the CLI, with a model at
// the address.
func (b *bench) lay(name string, p program, url string, repeat, flight int) (string, error) {
	dir, err := b.experiment(name, p.name, 1, repeat, flight)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "berth.hcl")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	hcl := strings.Replace(string(text), "  agent       = agent.a\n", "  agent       = agent.a\n  model       = model.m\n", 1)
	hcl += fmt.Sprintf("model \"m\" {\n  provider = %q\n  name     = %q\n  base_url = %q\n  in_flight = %d\n}\n", p.dialect, modelName, p.base(url), 4*flight)
	return dir, os.WriteFile(file, []byte(hcl), 0o600)
}

// base returns the base URL of a provider as its libraries write it.
func (p program) base(url string) string {
	if p.dialect == model.DialectAnthropic {
		return url
	}
	return url + "/v1"
}

// How many first requests are measured, and how many before that are not.
const (
	timed   = 15
	untimed = 3
)

// firstRequest measures the time from when the core begins to open the agent's
// session until the CLI's first request arrives at the provider. It compares it
// with the time from fork and exec of the same CLI by hand until its first
// request arrives at the same kind of provider. There is one run of 18 trials,
// one at a time, the first three of which do not count. While a trial's first
// request waits for its answer, the CLI is started by hand, and then in
// bubblewrap. So other load of the machine affects all of them equally, and
// they never work at the same time.
//
// The time of a trial begins with the line phase_start, setup, who: agent, in
// its events.jsonl. So it includes the core's work for a session (folders,
// relay, gateway), Open, the first message, everything that the plugin does in
// the sandbox before, and the gateway. The time of the other two begins right
// before fork. All end when the provider, in this process, has read the head of
// the request.
//
// By hand, the CLI gets the same bundle at the same path, the same arguments,
// variables and files as the plugin sends to a sandbox (notebook), and a new
// home folder in memory, as in a sandbox (Codex writes a database, and waits
// for the disk). The same holds for bubblewrap (unshare-all, with the network
// of the host).
func (b *bench) firstRequest(ctx context.Context, f *figures, p program) error {
	m, err := b.meter(ctx, p, timed+untimed, 1)
	if errors.Is(err, errMissing) {
		f.skipped = append(f.skipped, fmt.Sprintf("from Open to the first request of %s: %v", p.name, err))
		return nil
	}
	if err != nil {
		return err
	}
	defer m.close()
	beside := []func(context.Context, string) (time.Time, error){func(ctx context.Context, dir string) (time.Time, error) {
		out, failed := m.hand(ctx, dir)
		return out.Began, failed
	}}
	if _, err = exec.LookPath("bwrap"); err == nil {
		beside = append(beside, m.bubble)
	}
	took, used := make([][]time.Duration, 1+len(beside)), make([][]time.Duration, 1+len(beside)) // in a trial, by hand, in bubblewrap
	var wrong error
	round := 0
	m.ours.during(func(ctx context.Context) {
		round++
		before := family(os.Getpid()).programs()
		spent := []time.Duration{before.cpu(nil)}
		for i, do := range beside {
			dir := filepath.Join(m.homes, fmt.Sprint(round, "-", i))
			m.theirs.during(func(context.Context) { spent = append(spent, family(os.Getpid()).programs().cpu(before)) })
			began, failed := do(ctx, dir)
			arrived := m.theirs.take()
			if failed != nil || len(arrived) != 1 || len(spent) != i+2 {
				wrong = errors.Join(wrong, failed, fmt.Errorf("round %d: %d first requests, want 1", round, len(arrived)))
				return
			}
			if round > untimed {
				took[i+1], used[i+1] = append(took[i+1], arrived[0].Sub(began)), append(used[i+1], spent[i+1])
			}
			_ = os.RemoveAll(dir)
		}
		if round > untimed {
			used[0] = append(used[0], spent[0])
		}
	})
	_, runErr := b.berth(ctx, "run", m.dir, "--runs", m.runs, "--require", "passed = planned")
	if err = errors.Join(wrong, runErr); err != nil {
		return err
	}
	opened, err := opens(m.runs)
	if err != nil {
		return err
	}
	arrived := m.ours.take()
	if len(opened) != timed+untimed || len(arrived) != len(opened) {
		return fmt.Errorf("%d sessions and %d first requests, want %d", len(opened), len(arrived), timed+untimed)
	}
	for i, at := range arrived[untimed:] {
		took[0] = append(took[0], at.Sub(opened[i+untimed]))
	}
	m.report(f, took, used)
	return nil
}

// report makes the rows: of trials, by hand, and in bubblewrap if it is
// installed.
func (m *meter) report(f *figures, took, used [][]time.Duration) {
	whole := func(d time.Duration) string { return fmt.Sprintf("%.0f", float64(d)/float64(time.Millisecond)) }
	var times, cpu []string
	for i, name := range []string{"", "by hand ", "in bubblewrap "}[:len(took)] {
		times = append(times, name+whole(quantile(took[i], 0.5))+" ("+whole(quantile(took[i], 0.9))+") ms")
		cpu = append(cpu, name+whole(quantile(used[i], 0.5))+" ms")
	}
	more := func(v [][]time.Duration) string {
		return fmt.Sprintf("%+.0f ms", float64(quantile(v[0], 0.5)-quantile(v[1], 0.5))/float64(time.Millisecond))
	}
	f.add(fmt.Sprintf("%s: from Open to its first request, p50 (p90), %d rounds", m.p.name, len(took[0])), times[0], strings.Join(times[1:], ", "), more(took), "≤ 100 ms more")
	f.add(m.p.name+": its own processor time until then, p50", cpu[0], strings.Join(cpu[1:], ", "), more(used), "")
}

// meter is a run of a CLI, and everything needed to start the same CLI by hand.
type meter struct {
	p            program
	b            *bench
	ours, theirs *provider // of trials, and of CLIs started by hand
	start        start
	dir, runs    string
	homes        string // home folders for CLIs started by hand
}

// placeholder is the model's address in the start that the notebook recorded.
const placeholder = "http://127.0.0.1:65533"

func (b *bench) meter(ctx context.Context, p program, repeat, flight int) (m *meter, err error) {
	m = &meter{p: p, b: b, runs: filepath.Join(b.dir, fmt.Sprint(p.name, "-runs-", flight))}
	if m.start, err = b.startOf(ctx, p.name, placeholder, "Write 42 into answer.txt.\n", p.dialect); err != nil {
		return nil, err
	}
	if m.homes, err = os.MkdirTemp("/dev/shm", "bb"); err != nil { // missing, or not writable for us
		m.homes, err = os.MkdirTemp(b.dir, "homes")
	}
	if err != nil {
		return nil, err
	}
	if m.ours, err = newProvider(p.script()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(m.homes))
	}
	if m.theirs, err = newProvider(p.script()); err != nil {
		m.ours.Close()
		return nil, errors.Join(err, os.RemoveAll(m.homes))
	}
	if m.dir, err = b.lay(fmt.Sprint(p.name, "-", flight), p, m.ours.URL, repeat, flight); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *meter) close() {
	m.ours.Close()
	m.theirs.Close()
	_ = os.RemoveAll(m.homes) // in a folder for temporary files
}

// hand starts the CLI by hand in a new folder.
func (m *meter) hand(ctx context.Context, dir string) (handed, error) {
	h, err := m.start.at(dir, placeholder, m.theirs.URL)
	if err != nil {
		return handed{}, err
	}
	out, err := h.run(ctx)
	if err == nil {
		err = solved(filepath.Join(h.Dir, "answer.txt"))
	}
	return out, err
}

// solved checks that the CLI did its task; otherwise its measurement is
// invalid.
func solved(file string) error {
	got, err := os.ReadFile(file)
	if err == nil && strings.TrimSpace(string(got)) != "42" {
		err = fmt.Errorf("%s holds %q", file, got)
	}
	return err
}

// bubble starts the CLI in bubblewrap, with the parts of the host that it
// needs.
func (m *meter) bubble(ctx context.Context, dir string) (began time.Time, err error) {
	h, err := m.start.at(dir, placeholder, m.theirs.URL)
	if err != nil {
		return began, err
	}
	args := []string{
		"--unshare-all", "--share-net", "--die-with-parent", "--uid", "0", "--gid", "0", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc",
		"--symlink", "usr/bin", "/bin", "--symlink", "usr/sbin", "/sbin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", m.start.bundle, bundle.Place, "--bind", dir, dir, "--chdir", h.Dir,
	}
	cmd := exec.CommandContext(ctx, "bwrap", append(args, h.Argv...)...) //nolint:gosec // what the plugin would start
	var out bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = h.Env, strings.NewReader(h.Stdin), &out, &out
	cmd.SysProcAttr = ownSession()
	began = time.Now()
	if err = cmd.Run(); err != nil {
		return began, fmt.Errorf("%s in bubblewrap: %w: %s", m.p.name, err, tail(out.String()))
	}
	return began, solved(filepath.Join(h.Dir, "answer.txt"))
}

// opens returns the times at which the core began to open the agents' sessions,
// in order, for all attempts of the only run in a folder.
func opens(runs string) ([]time.Time, error) {
	files, err := filepath.Glob(filepath.Join(runs, "*", "trials", "*", "attempt-*", record.EventsFile))
	if err != nil {
		return nil, err
	}
	var out []time.Time
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			var e record.Event
			if err = json.Unmarshal(s.Bytes(), &e); err != nil {
				break
			}
			if e.Type == record.EventPhaseStart && e.Phase == record.PhaseSetup && e.Who == record.ByAgent {
				out = append(out, e.Time)
			}
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Before(out[j]) })
	return out, nil
}
