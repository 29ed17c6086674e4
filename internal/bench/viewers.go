package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/trajectory"
)

//go:embed inspectlog.py
var inspectLog []byte

// viewers opens the same trajectories in berth view, in the viewer of Harbor and in
// that of Inspect, with Chromium: 1,000 trials, one of them with 2,000 steps. The
// time is that from the address until the text is there. BERTH_VIEWERS names a
// virtual environment of Python with harbor and inspect-ai.
func (b *bench) viewers(ctx context.Context, f *figures) error {
	const trials, steps = 1000, 2000
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		f.skipped = append(f.skipped, "viewers side by side: chromium is not installed")
		return nil //nolint:nilerr // the other figures can be measured
	}
	folder := filepath.Join(b.dir, "shared")
	trial, err := sharedRun(folder, trials, steps)
	if err != nil {
		return err
	}
	v, err := b.viewer(ctx, folder)
	if err != nil {
		return err
	}
	defer v.stop()
	ctx, end := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.DisableGPU)...)
	defer end()
	ctx, end = chromedp.NewContext(ctx)
	defer end()
	if err = chromedp.Run(ctx, chromedp.Navigate(v.first)); err != nil {
		return err
	}
	run, step := v.address+"/run/shared/", "This is message 1."
	list, long, err := inBrowser(ctx, run+"trials", "bench/task-001", run+"trial/"+trial+"/1/", step)
	if err != nil {
		return fmt.Errorf("berth view: %w", err)
	}
	front, _, err := inBrowser(ctx, run, "1000 trials", run+"trial/"+trial+"/1/", step)
	if err != nil {
		return fmt.Errorf("berth view: %w", err)
	}
	python := os.Getenv("BERTH_VIEWERS")
	for _, other := range []struct {
		name, first string        // what its first page of a run shows
		ours        time.Duration // until Berth shows that
		do          func(ctx context.Context, python, run string, steps int) (list, long time.Duration, err error)
	}{{"Harbor", "the number of trials of a run of 1,000", front, b.harborViewer}, {"Inspect", "list of 1,000 trials", list, b.inspectViewer}} {
		if python == "" {
			f.skipped = append(f.skipped, "berth view beside the viewer of "+other.name+": set BERTH_VIEWERS (docs/benchmarks.md)")
			continue
		}
		theirs, theirLong, err := other.do(ctx, python, filepath.Join(folder, "shared"), steps)
		if err != nil {
			f.skipped = append(f.skipped, fmt.Sprintf("berth view beside the viewer of %s: %v", other.name, err))
			continue
		}
		f.add("in Chromium: "+other.first+", p50 of 5", ms(other.ours), other.name+": "+ms(theirs), fmt.Sprintf("%.2f", other.ours.Seconds()/theirs.Seconds()), "")
		f.add("in Chromium: an attempt with 2,000 steps, p50 of 5", ms(long), other.name+": "+ms(theirLong), fmt.Sprintf("%.2f", long.Seconds()/theirLong.Seconds()), "")
	}
	return nil
}

// sharedRun makes a finished run with trajectories, the first of which is long, and
// returns the id of its trial.
func sharedRun(folder string, trials, steps int) (string, error) {
	r, err := runOf(folder, trials)
	if err != nil {
		return "", err
	}
	for i, t := range r.Manifest.Trials {
		a, wrong := r.Begin(t.ID)
		if wrong != nil {
			return "", wrong
		}
		n := 5
		if i == 0 {
			n = steps
		}
		all := trajectory.Trajectory{SchemaVersion: trajectory.Version, SessionID: t.ID, Agent: trajectory.Agent{Name: "a", Version: "1"}}
		for k := range n {
			s := stepOf(k)
			all.Steps = append(all.Steps, s.Step)
			if err = a.Append(record.StepsFile, s); err != nil {
				return "", err
			}
		}
		text, err := json.Marshal(all)
		if err != nil {
			return "", err
		}
		score, now := float64(i%2), time.Now()
		if err = errors.Join(a.WriteFile(record.TrajectoryFile, text), a.Publish(record.Result{
			Version: 1, Trial: t.ID, Task: t.Task, TaskDigest: t.TaskDigest, Attempt: 1, Outcome: [...]record.Outcome{record.Failed, record.Passed}[i%2], AgentEnd: record.Yielded, Integrity: record.Checked,
			Score: &score, Scores: map[string]float64{"reward": score}, Start: now, End: now, Steps: int64(n),
		})); err != nil {
			return "", err
		}
	}
	return r.Manifest.Trials[0].ID, errors.Join(r.Close(), os.Rename(r.Dir, filepath.Join(folder, "shared")))
}

// inBrowser opens two addresses five times each, and returns the medians of the times
// until a text is on the page.
func inBrowser(ctx context.Context, list, listText, long, longText string) (a, b time.Duration, err error) {
	var all [2][]time.Duration
	for range 5 {
		for i, p := range [][2]string{{list, listText}, {long, longText}} {
			if err = chromedp.Run(ctx, chromedp.Navigate("about:blank")); err != nil {
				return 0, 0, err
			}
			began := time.Now()
			if err = chromedp.Run(ctx, chromedp.Navigate(p[0])); err == nil {
				err = shown(ctx, p[1])
			}
			if err != nil {
				return 0, 0, fmt.Errorf("%s: %w", p[0], err)
			}
			all[i] = append(all[i], time.Since(began))
		}
	}
	return quantile(all[0], 0.5), quantile(all[1], 0.5), nil
}

// shown waits until a text is on the page, which may go to another address meanwhile.
func shown(ctx context.Context, text string) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		there := false
		err := chromedp.Run(ctx, chromedp.Evaluate(fmt.Sprintf("!!document.body && document.body.innerText.includes(%q)", text), &there))
		if there && err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
	}
	var has string
	_ = chromedp.Run(ctx, chromedp.Evaluate("document.body.innerText.slice(0, 300)", &has)) // for the message
	return fmt.Errorf("%q does not appear: the page has %q", text, has)
}

// serving starts a server, calls use when it answers, and ends it.
func serving(ctx context.Context, port string, use func() error, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	var said tailing
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:"+port)
		if err == nil {
			return errors.Join(c.Close(), use())
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s does not answer: %w: %s", filepath.Base(program), err, said.b)
		}
	}
}

// tailing keeps the end of what is written.
type tailing struct{ b []byte }

func (t *tailing) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-2000):]
	return len(p), nil
}

func freePort(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

func (b *bench) harborViewer(ctx context.Context, python, run string, _ int) (list, long time.Duration, err error) {
	jobs := filepath.Join(b.dir, "jobs")
	if _, err = b.berth(ctx, "export", run, "--to", "harbor", "-o", filepath.Join(jobs, "shared")); err != nil {
		return 0, 0, err
	}
	names, err := filepath.Glob(filepath.Join(jobs, "shared", "*", "agent", "trajectory.json"))
	if err != nil || len(names) == 0 {
		return 0, 0, errors.Join(err, errors.New("the job has no trajectory"))
	}
	longest, size := "", int64(0)
	for _, name := range names {
		if fi, statErr := os.Stat(name); statErr == nil && fi.Size() > size {
			longest, size = filepath.Base(filepath.Dir(filepath.Dir(name))), fi.Size()
		}
	}
	port, err := freePort(ctx)
	if err != nil {
		return 0, 0, err
	}
	at := "http://127.0.0.1:" + port + "/jobs/shared"
	err = serving(ctx, port, func() error {
		// Its page of a job has no list of trials at first, but their number.
		list, long, err = inBrowser(ctx, at, "1000/1000 trials", at+"/trials/"+longest, "This is message 1.")
		return err
	}, filepath.Join(python, "bin", "harbor"), "view", jobs, "--port", port, "--jobs")
	return list, long, err
}

func (b *bench) inspectViewer(ctx context.Context, python, run string, _ int) (list, long time.Duration, err error) {
	from, to := filepath.Join(b.dir, "atif"), filepath.Join(b.dir, "inspect")
	script := filepath.Join(b.dir, "inspectlog.py")
	if _, err = b.berth(ctx, "export", run, "--to", "atif", "-o", from); err != nil {
		return 0, 0, err
	}
	if err = os.WriteFile(script, inspectLog, 0o600); err != nil {
		return 0, 0, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(python, "bin", "python"), script, from, to).CombinedOutput()
	if err != nil {
		return 0, 0, fmt.Errorf("write a log: %w: %s", err, tail(string(out)))
	}
	port, err := freePort(ctx)
	if err != nil {
		return 0, 0, err
	}
	at := "http://127.0.0.1:" + port + "/#/logs/shared.eval/samples"
	err = serving(ctx, port, func() error {
		list, long, err = inBrowser(ctx, at, "bench/task-001", at+"/sample/longest/1/messages", "This is message 1.")
		return err
	}, filepath.Join(python, "bin", "inspect"), "view", "start", "--log-dir", to, "--port", port)
	return list, long, err
}
