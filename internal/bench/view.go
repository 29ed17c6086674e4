package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// view measures berth view: how fast pages open, what they take of memory, and
// whether a run in progress is slowed by a browser that follows it.
func (b *bench) view(ctx context.Context, f *figures) error {
	const trials, runs, steps = 10_000, 10, 2000
	folder := filepath.Join(b.dir, "view")
	long, err := finishedRuns(folder, runs, trials, steps)
	if err != nil {
		return err
	}
	v, err := b.viewer(ctx, folder)
	if err != nil {
		return err
	}
	defer v.stop()
	var first, again, tables, parts []time.Duration
	var busy time.Duration
	pages := 0
	for n := range runs {
		page := fmt.Sprintf("/run/run-%d/", n)
		v.used.look(v.cmd.Process.Pid)
		busy -= v.used.cpu
		for _, m := range []struct {
			path string
			into *[]time.Duration
		}{{page, &first}, {page, &again}, {page + "trials", &tables}, {fmt.Sprintf("/run/run-%d/%s", n, long), &parts}, {page + "charts", nil}, {page + "progress", nil}} {
			took, size, err := v.open(ctx, m.path)
			if err != nil {
				return err
			}
			if m.into != nil {
				*m.into = append(*m.into, took)
			}
			if pages += size; m.into == &first {
				v.used.look(v.cmd.Process.Pid)
				busy += v.used.cpu
			}
		}
	}
	if _, _, err = v.open(ctx, "/"); err != nil {
		return err
	}
	v.used.look(v.cmd.Process.Pid)
	f.add("berth view: a run of 10,000 trials opens, p50 of ten runs", ms(quantile(first, 0.5)), fmt.Sprintf("%s of processor time; again: %s", ms(busy/runs), ms(quantile(again, 0.5))), "slowest: "+ms(slices.Max(first)), "< 1 s")
	f.add("berth view: its first 200 trials", ms(quantile(tables, 0.5)), "", "slowest: "+ms(slices.Max(tables)), "")
	f.add("berth view: an attempt with 2,000 steps opens", ms(quantile(parts, 0.5)), "", "slowest: "+ms(slices.Max(parts)), "< 500 ms")
	peak, err := v.peak()
	if err != nil {
		return err
	}
	f.add("berth view: memory with ten such runs, all their pages and charts", fmt.Sprintf("%d MB", v.used.rss>>10), fmt.Sprintf("%d MB at most", peak>>10), fmt.Sprintf("%d MB were sent", pages>>20), "≤ 150 MB")
	return v.watched(ctx, f, folder)
}

// finishedRuns makes equal runs in a folder, run-0 and so on, and returns the address
// of the page of an attempt that has that many steps, below that of its run.
func finishedRuns(folder string, runs, trials, steps int) (long string, err error) {
	r, err := runOf(folder, trials)
	if err != nil {
		return "", err
	}
	cost := 0.01
	for i, t := range r.Manifest.Trials {
		a, err := r.Begin(t.ID)
		if err != nil {
			return "", err
		}
		now := time.Now()
		for n := range steps {
			if i > 0 {
				break
			}
			if err = a.Append(record.StepsFile, stepOf(n)); err != nil {
				return "", err
			}
		}
		score := float64(i % 2)
		if err = a.Publish(record.Result{
			Version: 1, Trial: t.ID, Task: t.Task, Attempt: 1, Outcome: [...]record.Outcome{record.Failed, record.Passed}[i%2], AgentEnd: record.Yielded, Integrity: record.Checked, Mode: "live",
			Score: &score, Scores: map[string]float64{"reward": score}, Labels: map[string]string{"difficulty": "hard"}, Start: now, End: now, Steps: int64(steps), AgentTime: time.Duration(i) * time.Millisecond,
			Usage:   []record.Usage{{Role: "agent", Model: "m", Requests: 10, InputTokens: 10_000, OutputTokens: 900, CostUSD: &cost}},
			Plugins: []record.PluginUsed{{Kind: "agent", Name: "a", Digest: "sha256:1"}, {Kind: "environment", Name: "local", Digest: "sha256:2"}, {Kind: "verifier", Name: "script", Digest: "sha256:3"}},
		}); err != nil {
			return "", err
		}
	}
	sum, err := json.Marshal(summary.Of(r.Manifest, r.Index()))
	if err = errors.Join(err, r.WriteFile(store.SummaryFile, sum), r.Close()); err != nil {
		return "", err
	}
	first := filepath.Join(folder, "run-0")
	if err = os.Rename(r.Dir, first); err != nil {
		return "", err
	}
	for n := 1; n < runs; n++ { // files are shared: only what the index reads differs
		if err = linked(first, filepath.Join(folder, fmt.Sprint("run-", n))); err != nil {
			return "", err
		}
	}
	return "trial/" + r.Manifest.Trials[0].ID + "/1/", nil
}

// runOf makes a run of trials of 100 tasks in ten cells.
func runOf(folder string, trials int) (*store.Run, error) {
	m := &store.Manifest{Header: store.Header{Experiment: "view", Berth: "bench", Created: time.Now()}}
	for n := range 10 {
		name := fmt.Sprint("model-", n)
		m.Cells = append(m.Cells, store.Cell{Index: n, Key: "model=" + name, Slug: name, Agent: "a", Environment: "local", Choices: map[string]string{"model": name}})
	}
	for n := range trials {
		id := fmt.Sprintf("%064x", n+1)
		task := fmt.Sprintf("bench/task-%03d", n/10%100)
		m.Trials = append(m.Trials, store.Trial{
			ID: id, Dir: store.TrialDir(task, m.Cells[n%10].Slug, n/1000+1, id), Task: task, TaskDigest: fmt.Sprintf("sha256:%064x", n/10%100), Dataset: "bench", Cell: n % 10, Repetition: n/1000 + 1,
		})
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	return store.Create(folder, m, nil)
}

// stepOf is a step with some 2 KiB of text.
func stepOf(n int) record.Step {
	seen := trajectory.Text(strings.Repeat(fmt.Sprintf("line %d of what was seen\n", n), 60))
	in, out := int64(4000), int64(120)
	return record.Step{Time: time.Now(), Stage: "main", Turn: 1, Role: "agent", Step: trajectory.Step{
		StepID: int64(n + 1), Source: trajectory.Model, Message: trajectory.Text(fmt.Sprintf("This is message %d. I look at the next file.", n+1)), ModelName: "m",
		ToolCalls:   []trajectory.ToolCall{{ID: fmt.Sprint("call_", n), Name: "bash", Arguments: []byte(fmt.Sprintf(`{"command":"sed -n %d,60p file.txt"}`, n))}},
		Observation: &trajectory.Observation{Results: []trajectory.Result{{SourceCallID: fmt.Sprint("call_", n), Content: &seen}}},
		Metrics:     &trajectory.Metrics{PromptTokens: &in, CompletionTokens: &out},
	}}
}

// linked makes a copy of a folder whose files are the same ones.
func linked(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		return os.Link(path, filepath.Join(to, rel))
	})
}

// viewer is a running berth view.
type viewer struct {
	cmd     *exec.Cmd
	client  *http.Client
	address string // without the token
	first   string // with it
	used    used
}

func (b *bench) viewer(ctx context.Context, folder string) (*viewer, error) {
	home, err := os.MkdirTemp(b.dir, "viewing")
	if err != nil {
		return nil, err
	}
	if err = os.Symlink(folder, filepath.Join(home, "runs")); err != nil {
		return nil, err
	}
	v := &viewer{cmd: exec.CommandContext(ctx, filepath.Join(b.bin, "berth"), "view")}
	v.cmd.Dir = home
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err = v.cmd.Start(); err != nil {
		return nil, err
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		v.stop()
		return nil, fmt.Errorf("berth view: %q: %w", said, err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	v.first = strings.TrimSpace(said)
	u, err := url.Parse(v.first)
	if err != nil {
		v.stop()
		return nil, err
	}
	v.address = "http://" + u.Host
	jar, err := cookiejar.New(nil)
	if err == nil {
		v.client = &http.Client{Jar: jar}
		_, _, err = v.open(ctx, "/?"+u.RawQuery)
	}
	return v, err
}

func (v *viewer) stop() {
	_ = v.cmd.Process.Signal(os.Interrupt)
	_ = v.cmd.Wait()
}

// open gets a page, and returns how long it took and how large it is.
func (v *viewer) open(ctx context.Context, path string) (time.Duration, int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.address+path, nil)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	answer, err := v.client.Do(r)
	if err != nil {
		return 0, 0, err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.300s", path, answer.Status, b)
	}
	return time.Since(began), len(b), err
}

// peak is the most memory that the program has had, in KiB.
func (v *viewer) peak() (kib int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	_, err = fmt.Sscan(rest, &kib)
	return kib, err
}

// watched measures a run with 1,000 attempts in flight whose steps are recorded, with
// and without a browser that follows the run: alternating, five rounds of both.
func (v *viewer) watched(ctx context.Context, f *figures, folder string) error {
	const flight, steps, ends = 1000, 40_000, 300
	r, err := runOf(folder, 5*2*(ends+2)+flight)
	if err != nil {
		return err
	}
	defer r.Close()
	next, open := 0, []*store.Attempt{}
	begin := func() error {
		a, err := r.Begin(r.Manifest.Trials[next].ID)
		next++
		open = append(open, a)
		return err
	}
	for range flight {
		if err = begin(); err != nil {
			return err
		}
	}
	work := func() (time.Duration, error) {
		began := time.Now()
		for n := range steps {
			a := open[n%flight]
			if err := a.Append(record.StepsFile, stepOf(n)); err != nil {
				return 0, err
			}
			if n%(steps/ends) == 0 {
				a = open[0]
				open = open[1:]
				if err := a.Publish(record.Result{Version: 1, Outcome: record.Passed, Start: began, End: time.Now()}); err != nil {
					return 0, err
				}
				if err := begin(); err != nil {
					return 0, err
				}
			}
		}
		return time.Since(began), nil
	}
	var alone, followed []time.Duration
	var renewed atomic.Int64
	var cpu, watching time.Duration
	for range 5 {
		took, err := work()
		if err != nil {
			return err
		}
		alone = append(alone, took)
		follow, end := context.WithCancel(ctx)
		var before, after used
		before.look(v.cmd.Process.Pid)
		done := make(chan error, 1)
		go func() { done <- v.follow(follow, "/run/"+filepath.Base(r.Dir)+"/", &renewed) }()
		took, err = work()
		end()
		if ended := <-done; !errors.Is(ended, context.Canceled) {
			err = errors.Join(err, ended)
		}
		if err != nil {
			return err
		}
		after.look(v.cmd.Process.Pid)
		watching += took
		cpu += after.cpu - before.cpu
		followed = append(followed, took)
	}
	a, w := quantile(alone, 0.5), quantile(followed, 0.5)
	f.add("40,000 steps and 300 attempts of a run with 1,000 in flight, followed by a browser", ms(w), "not followed: "+ms(a), fmt.Sprintf("%.2f", w.Seconds()/a.Seconds()), "not slower")
	f.add("pages that the browser got meanwhile", fmt.Sprint(renewed.Load()), fmt.Sprintf("in %.1f s", watching.Seconds()), fmt.Sprintf("%.1f s of processor time of berth view", cpu.Seconds()), "")
	return nil
}

// follow does what a browser does that shows the page of a run: it gets the page, and
// again whenever it hears of a change.
func (v *viewer) follow(ctx context.Context, page string, renewed *atomic.Int64) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.address+page+"changes", nil)
	if err != nil {
		return err
	}
	answer, err := v.client.Do(r)
	if err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data:") {
			if _, _, err = v.open(ctx, page); err != nil && ctx.Err() == nil {
				return err
			}
			renewed.Add(1)
		}
	}
	return nil
}
