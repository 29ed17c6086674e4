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
	"time"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/relay"
	"github.com/berth-eval/berth/plugins/surface"
	surfaces "github.com/berth-eval/berth/plugins/surface/host"
	"github.com/berth-eval/berth/plugins/task"
)

const (
	actRounds = 60
	pageNodes = 250 // of the page, as applications that are tasks have
)

// surfaces measures what the core adds to an action of a browser.
func (b *bench) surfaces(ctx context.Context, f *figures) error {
	if _, err := exec.LookPath("chromium"); err != nil {
		f.skipped = append(f.skipped, "surfaces: chromium is not installed: apt-get install chromium")
		return nil //nolint:nilerr // it is told
	}
	site := filepath.Join(b.dir, "site")
	if err := writePage(site); err != nil {
		return err
	}
	h, err := plugin.New(plugin.Options{Dirs: []string{filepath.Join(b.bin, "plugins")}})
	if err != nil {
		return err
	}
	defer h.Stop()
	s := &browsing{b: b, f: f, plugins: h, site: site}
	return s.acts(ctx)
}

// browsing is the state of the measurements.
type browsing struct {
	b       *bench
	f       *figures
	plugins *plugin.Host
	site    string
	opened  int
}

// writePage makes a folder with a page.
func writePage(site string) error {
	var page strings.Builder
	page.WriteString("<!doctype html><meta charset=utf-8><title>Rows</title><h1>Rows</h1>\n")
	for i := range pageNodes / 5 { // five elements each
		fmt.Fprintf(&page, "<div><span>Row %d</span><button>Press %d</button><a href='#%d'>Link</a><input value='%d'></div>\n", i, i, i, i)
	}
	if err := os.Mkdir(site, 0o755); err != nil { //nolint:gosec // the browser reads it
		return err
	}
	return os.WriteFile(filepath.Join(site, "index.html"), []byte(page.String()), 0o644) //nolint:gosec // the same
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

// open opens a browser on a page, in a sandbox that is made before.
func (s *browsing) open(ctx context.Context) (o *open, err error) {
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
		return nil, err
	}
	undo = append(undo, func() { _ = o.box.close() })
	e, _, err := s.plugins.Environment(ctx, "browser")
	if err != nil {
		return nil, err
	}
	has, ok := e.(environment.Surface)
	if !ok {
		return nil, errors.New("the plugin browser has no surface")
	}
	o.clocked = &clocked{Surface: has}
	conf := json.RawMessage(`{"slow_mo": "0s", "settle": "0s"}`)
	settings, err := json.Marshal(map[string]string{"url": "/index.html", "pages": "."})
	if err != nil {
		return nil, err
	}
	needs, err := has.Needs(ctx, environment.SurfaceRequest{Config: conf, Settings: settings})
	if err != nil {
		return nil, err
	}
	s.opened++
	dir := filepath.Join(s.b.dir, "o"+strconv.Itoa(s.opened))
	who := host.Session{ID: "surface", Guarded: true}
	o.surface, err = surfaces.Open(ctx, surfaces.Options{
		Plugin: o.clocked, Needs: surfaces.Needs{"main": needs}, Spec: environment.SurfaceSpec{Config: conf, Settings: settings, Files: s.site},
		Dir: dir, Sockets: filepath.Join(s.b.dir, "f"+strconv.Itoa(s.opened)), Shell: relay.Of(o.box.box, who), Dial: o.box.box.Dial,
		Frames: filepath.Join(dir, "kept"), Append: func(surface.Line) {}, Now: time.Now,
	})
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = o.surface.Close(context.WithoutCancel(ctx)) })
	if err = o.surface.Begin(ctx, &task.Stage{Name: "main", Surface: &task.Surface{Observations: wanted}}, 1); err != nil {
		return nil, err
	}
	door, err := o.surface.NewDoor(filepath.Join(s.b.dir, "n"+strconv.Itoa(s.opened)))
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = door.Shut(context.WithoutCancel(ctx)) })
	door.Open(ctx)
	o.agent, err = surface.Dial(door.Address())
	return o, err
}

// acts measures what an action takes beyond the plugin's part.
func (s *browsing) acts(ctx context.Context) error {
	o, err := s.open(ctx)
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
