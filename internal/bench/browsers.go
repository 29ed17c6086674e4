package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/verifiers/visualjudge/filter"
)

// observeProgram drives BrowserGym.
//
//go:embed observe.py
var observeProgram string

// gym is BrowserGym with a browser.
type gym struct {
	in    io.WriteCloser
	out   *bufio.Scanner
	said  bytes.Buffer
	close func()
}

// gym starts BrowserGym with the Chromium of this machine; nil, with the reason, if it
// is not installed.
func (s *browsing) gym(ctx context.Context) (*gym, string) {
	python, err := exec.CommandContext(ctx, "scripts/browsergym-for-bench", "--installed").Output()
	if err != nil {
		return nil, "it is not installed: run scripts/browsergym-for-bench"
	}
	g := &gym{}
	ctx, stop := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, strings.TrimSpace(string(python)), "-c", observeProgram, s.chromium) //nolint:gosec // our own script says which
	cmd.Stderr = &g.said
	g.in, err = cmd.StdinPipe()
	var out io.ReadCloser
	if err == nil {
		out, err = cmd.StdoutPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		stop()
		return nil, err.Error()
	}
	g.out = bufio.NewScanner(out)
	g.close = func() {
		_ = g.in.Close() // it closes its browser and ends
		late := time.AfterFunc(10*time.Second, stop)
		defer late.Stop()
		_ = cmd.Wait()
		stop()
	}
	if _, err = g.line(); err != nil {
		g.close()
		return nil, err.Error()
	}
	return g, ""
}

func (g *gym) line() ([]byte, error) {
	if !g.out.Scan() {
		text := g.said.String()
		return nil, fmt.Errorf("BrowserGym ended: %s", text[max(0, len(text)-2000):])
	}
	return g.out.Bytes(), nil
}

func (g *gym) open(url string) error {
	_, err := io.WriteString(g.in, "open "+url+"\n")
	if err == nil {
		_, err = g.line()
	}
	return err
}

func (g *gym) observe() (time.Duration, error) {
	_, err := io.WriteString(g.in, "observe\n")
	if err != nil {
		return 0, err
	}
	line, err := g.line()
	if err != nil {
		return 0, err
	}
	var got struct {
		Took time.Duration
		Tree int
	}
	if err = json.Unmarshal(line, &got); err == nil && got.Tree == 0 {
		err = fmt.Errorf("BrowserGym observed nothing: %s", line)
	}
	return got.Took, err
}

// bare starts Chromium on the host, opens a page over its pipe, and takes a screenshot
// and the accessibility tree.
func (s *browsing) bare(ctx context.Context, page string) (took time.Duration, err error) {
	dir, err := os.MkdirTemp(s.b.dir, "bare")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	theirIn, in, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, s.chromium, "--headless", "--remote-debugging-pipe", "--no-startup-window", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--window-size=1280,720", "--user-data-dir="+filepath.Join(dir, "profile"))
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	began := time.Now()
	if err = cmd.Start(); err != nil {
		stop()
		return 0, err
	}
	defer func() {
		stop()
		_ = cmd.Wait()
		_, _ = in.Close(), out.Close()
	}()
	_, _ = theirIn.Close(), theirOut.Close()
	c := &protocol{in: in, out: bufio.NewReaderSize(out, 1<<20)}
	var made struct{ TargetID string }
	var session struct{ SessionID string }
	var shot struct{ Data string }
	var tree struct{ Nodes []json.RawMessage }
	for _, step := range []struct {
		method string
		params map[string]any
		into   any
		event  string // to wait for afterwards
	}{
		{"Target.createTarget", map[string]any{"url": "about:blank"}, &made, ""},
		{"Target.attachToTarget", map[string]any{"flatten": true}, &session, ""},
		{"Page.enable", nil, nil, ""},
		{"Emulation.setDeviceMetricsOverride", map[string]any{"width": 1280, "height": 720, "deviceScaleFactor": 1, "mobile": false}, nil, ""},
		{"Page.navigate", map[string]any{"url": "file://" + filepath.Join(s.site, page, "index.html")}, nil, "Page.domContentEventFired"},
		{"Accessibility.getFullAXTree", nil, &tree, ""},
		{"Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": true}, &shot, ""},
	} {
		if step.method == "Target.attachToTarget" {
			step.params["targetId"] = made.TargetID
		}
		if err = c.do(session.SessionID, step.method, step.params, step.into); err == nil && step.event != "" {
			err = c.await(step.event)
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w", step.method, err)
		}
	}
	if shot.Data == "" || len(tree.Nodes) == 0 {
		return 0, fmt.Errorf("a screenshot of %d bytes and a tree of %d nodes", len(shot.Data), len(tree.Nodes))
	}
	return time.Since(began), nil
}

// protocol is Chromium's protocol on a pipe, one call at a time.
type protocol struct {
	in     io.Writer
	out    *bufio.Reader
	last   int
	events []string // that came in the meantime
}

type reply struct {
	ID     int
	Method string
	Result json.RawMessage
	Error  json.RawMessage
}

func (c *protocol) read() (r reply, err error) {
	text, err := c.out.ReadBytes(0)
	if err != nil {
		return r, err
	}
	err = json.Unmarshal(text[:len(text)-1], &r)
	if r.Method != "" {
		c.events = append(c.events, r.Method)
	}
	return r, err
}

func (c *protocol) do(session, method string, params map[string]any, into any) error {
	c.last++
	q := map[string]any{"id": c.last, "method": method}
	if session != "" {
		q["sessionId"] = session
	}
	if params != nil {
		q["params"] = params
	}
	text, err := json.Marshal(q)
	if err == nil {
		_, err = c.in.Write(append(text, 0))
	}
	for err == nil {
		var r reply
		if r, err = c.read(); err != nil || r.ID != c.last {
			continue
		}
		if len(r.Error) > 0 {
			return fmt.Errorf("%s", r.Error)
		}
		if into == nil {
			return nil
		}
		return json.Unmarshal(r.Result, into)
	}
	return err
}

func (c *protocol) await(event string) error {
	for {
		for i, e := range c.events {
			if e == event {
				c.events = c.events[i+1:]
				return nil
			}
		}
		if _, err := c.read(); err != nil {
			return err
		}
	}
}

// filter measures how many pairs of pictures the filter of the visual judge compares
// in a second of processor time, from the bytes of PNGs on.
func (s *browsing) filter(context.Context, []string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cpu := func() time.Duration {
		var r unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &r); err != nil {
			return 0
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	var before *filter.Small
	pairs, began := 0, cpu()
	for cpu()-began < 2*time.Second {
		for _, shot := range s.shots {
			now, err := filter.Read(shot, "image/png")
			if err != nil {
				return err
			}
			if before != nil {
				_ = filter.Compare(before, now)
				pairs++
			}
			before = now
		}
	}
	s.f.add("filter of the visual judge: pairs of 1280 × 720 PNGs per second of a processor", fmt.Sprintf("%.0f", float64(pairs)/(cpu()-began).Seconds()), "", "", "≥ 200")
	return nil
}
