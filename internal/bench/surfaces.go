package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/relay"
	"github.com/berth-eval/berth/plugins/surface"
	surfaces "github.com/berth-eval/berth/plugins/surface/host"
	"github.com/berth-eval/berth/plugins/task"
)

// How often things of surfaces are measured.
const (
	observeRounds = 21 // or as many as fit into observeTime, at least leastRounds
	leastRounds   = 5
	observeTime   = time.Minute
	actRounds     = 60
	openRounds    = 9
	manyNodes     = 5000
)

// surfaces measures a browser as a surface: what an observation takes, what the core
// adds to an action, and how long the first observation takes.
func (b *bench) surfaces(ctx context.Context, f *figures) error {
	if _, err := exec.LookPath("chromium"); err != nil {
		f.skipped = append(f.skipped, "surfaces: chromium is not installed: apt-get install chromium")
		return nil //nolint:nilerr // it is told
	}
	site := filepath.Join(b.dir, "site")
	pages, err := writePages(site)
	if err != nil {
		return err
	}
	h, err := plugin.New(plugin.Options{Dirs: []string{filepath.Join(b.bin, "plugins")}})
	if err != nil {
		return err
	}
	defer h.Stop()
	s := &browsing{b: b, f: f, plugins: h, site: site}
	for _, part := range []func(context.Context, []string) error{s.observations, s.acts, s.first} {
		if err := part(ctx, pages); err != nil {
			return err
		}
	}
	return nil
}

// browsing is the state of the measurements.
type browsing struct {
	b       *bench
	f       *figures
	plugins *plugin.Host
	site    string
	opened  int
}

// writePages makes a folder with the pages: one of many nodes, that of the example
// with a judge, and the applications of the example gauntlet, where it is.
func writePages(site string) (pages []string, err error) {
	var page strings.Builder
	page.WriteString("<!doctype html><meta charset=utf-8><title>Many nodes</title><h1>Many nodes</h1>\n")
	for i := range manyNodes / 5 { // five elements each
		fmt.Fprintf(&page, "<div><span>Row %d</span><button>Press %d</button><a href='#%d'>Link</a><input value='%d'></div>\n", i, i, i, i)
	}
	if err = os.MkdirAll(filepath.Join(site, "many"), 0o755); err != nil { //nolint:gosec // the browser reads it
		return nil, err
	}
	if err = os.WriteFile(filepath.Join(site, "many", "index.html"), []byte(page.String()), 0o644); err != nil { //nolint:gosec // the same
		return nil, err
	}
	pages = append(pages, "many")
	for name, from := range map[string]string{"judge": "examples/visual-judge/tasks/greet/tests", "gauntlet": "examples/gauntlet/apps"} {
		found, err := filepath.Glob(filepath.Join(from, "*", "index.html"))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			continue
		}
		if err = os.CopyFS(filepath.Join(site, name), os.DirFS(from)); err != nil { // with what pages share
			return nil, err
		}
		for _, f := range found {
			pages = append(pages, name+"/"+filepath.Base(filepath.Dir(f)))
		}
	}
	slices.Sort(pages[1:])
	return pages, nil
}

// open is a browser in a sandbox, as an agent gets it.
type open struct {
	agent   *surface.Client
	surface *surfaces.Surface
	box     *made
	clocked *clocked
	close   func()
}

// clocked measures the calls of a plugin.
type clocked struct {
	environment.Surface

	mu   sync.Mutex
	took time.Duration // of the last Act
}

// Act implements environment.Surface.
func (t *clocked) Act(ctx context.Context, id string, c environment.Call, want []string) (environment.Step, error) {
	began := time.Now()
	s, err := t.Surface.Act(ctx, id, c, want)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = time.Since(began)
	return s, err
}

func (t *clocked) last() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.took
}

// wanted is what an observation has in all measurements.
var wanted = []string{"screenshot", "axtree"}

// open opens a browser on a page, in a sandbox that is made before. took is the time
// from the start of the browser to the first observation.
func (s *browsing) open(ctx context.Context, page string) (o *open, took time.Duration, err error) {
	o = &open{}
	var undo []func()
	o.close = func() {
		for i := len(undo) - 1; i >= 0; i-- { //nolint:modernize // as in made
			undo[i]()
		}
	}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	if o.box, err = s.b.sandbox(ctx, "local"); err != nil {
		return nil, 0, err
	}
	undo = append(undo, o.box.close)
	e, _, err := s.plugins.Environment(ctx, "browser")
	if err != nil {
		return nil, 0, err
	}
	has, ok := e.(environment.Surface)
	if !ok {
		return nil, 0, errors.New("the plugin browser has no surface")
	}
	o.clocked = &clocked{Surface: has}
	conf := json.RawMessage(`{"slow_mo": "0s", "settle": "0s"}`)
	settings, err := json.Marshal(map[string]string{"url": page + "/index.html", "pages": "."})
	if err != nil {
		return nil, 0, err
	}
	needs, err := has.Needs(ctx, environment.SurfaceRequest{Config: conf, Settings: settings})
	if err != nil {
		return nil, 0, err
	}
	s.opened++
	dir := filepath.Join(s.b.dir, "o"+strconv.Itoa(s.opened))
	who := host.Session{ID: "surface", Guarded: true}
	began := time.Now()
	o.surface, err = surfaces.Open(ctx, surfaces.Options{
		Plugin: o.clocked, Needs: surfaces.Needs{"main": needs}, Spec: environment.SurfaceSpec{Config: conf, Settings: settings, Files: s.site},
		Dir: dir, Sockets: filepath.Join(s.b.dir, "f"+strconv.Itoa(s.opened)), Shell: relay.Of(o.box.box, who), Dial: o.box.box.Dial,
		Frames: filepath.Join(dir, "kept"), Append: func(surface.Line) {}, Now: time.Now,
	})
	if err != nil {
		return nil, 0, err
	}
	undo = append(undo, func() { _ = o.surface.Close(context.WithoutCancel(ctx)) })
	if err = o.surface.Begin(ctx, &task.Stage{Name: "main", Surface: &task.Surface{Observations: wanted}}, 1); err != nil {
		return nil, 0, err
	}
	took = time.Since(began)
	door, err := o.surface.NewDoor(filepath.Join(s.b.dir, "n"+strconv.Itoa(s.opened)))
	if err != nil {
		return nil, 0, err
	}
	undo = append(undo, func() { _ = door.Shut(context.WithoutCancel(ctx)) })
	door.Open(ctx)
	o.agent, err = surface.Dial(door.Address())
	return o, took, err
}

// observations measures an observation of each page, as the agent gets it.
func (s *browsing) observations(ctx context.Context, pages []string) error {
	for _, page := range pages {
		if err := s.observed(ctx, page); err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
	}
	return nil
}

func (s *browsing) observed(ctx context.Context, page string) error {
	o, _, err := s.open(ctx, page)
	if err != nil {
		return err
	}
	defer o.close()
	var times []time.Duration
	size, begin := 0, time.Now()
	for i := range observeRounds + 1 {
		if i > leastRounds && time.Since(begin) > observeTime {
			break
		}
		began := time.Now()
		seen, err := o.agent.Observe(ctx, wanted)
		took := time.Since(began)
		if err != nil {
			return err
		}
		if len(seen.Frames) != 1 || len(seen.JSON) == 0 {
			return fmt.Errorf("an observation with %d pictures and %d bytes of a tree", len(seen.Frames), len(seen.JSON))
		}
		size = len(seen.JSON)
		if i == 0 {
			continue
		}
		times = append(times, took)
	}
	s.f.add(fmt.Sprintf("observe %s (tree of %d KiB) with a screenshot, p50 of %d", page, size>>10, len(times)), ms(quantile(times, 0.5)), "", "", "printed")
	return nil
}

// acts measures what an action takes beyond the plugin's part.
func (s *browsing) acts(ctx context.Context, pages []string) error {
	o, _, err := s.open(ctx, pages[len(pages)-1])
	if err != nil {
		return err
	}
	defer o.close()
	var added, whole []time.Duration
	for i := range actRounds + 5 {
		began := time.Now()
		step, err := o.agent.Act(ctx, environment.Call{Name: "mouse_move", Arguments: json.RawMessage(fmt.Sprintf(`{"x": %d, "y": 400}`, 100+i))}, wanted)
		took := time.Since(began)
		if err != nil || step.Error != "" {
			return fmt.Errorf("an action: %q, %w", step.Error, err)
		}
		if i >= 5 {
			added, whole = append(added, took-o.clocked.last()), append(whole, took)
		}
	}
	s.f.add(fmt.Sprintf("core's part of an action with an observation, p50 of %d", actRounds), ms(quantile(added, 0.5)), "the whole action: "+ms(quantile(whole, 0.5)),
		"p90: "+ms(quantile(added, 0.9)), "≤ 2 ms")
	return nil
}

// first measures the time from the start of the browser to the first observation.
func (s *browsing) first(ctx context.Context, pages []string) error {
	var times []time.Duration
	for i := range openRounds + 1 {
		o, took, err := s.open(ctx, pages[len(pages)-1])
		if err != nil {
			return err
		}
		o.close()
		if i > 0 {
			times = append(times, took)
		}
	}
	s.f.add(fmt.Sprintf("first observation in a sandbox, p50 of %d", openRounds), ms(quantile(times, 0.5)), "", "", "printed")
	return nil
}
