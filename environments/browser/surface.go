package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-eval/berth/environments/internal/page"
	"github.com/berth-eval/berth/environments/internal/surfaces"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// What Chromium needs, in MiB.
const (
	needsShm    = 0 // --disable-dev-shm-usage
	needsMemory = 512
)

func newSurface() *surfaces.Kind { return &surfaces.Kind{Name: "browser", Ask: needs, Start: start} }

// open is one browser in a sandbox.
type open struct {
	spec    environment.SurfaceSpec
	config  Config
	task    settings
	shell   *sandbox.Client
	browser *page.Process
	frames  surfaces.Frames
}

func needs(r environment.SurfaceRequest) (n environment.SurfaceNeeds, err error) {
	var c Config
	var s settings
	if err = errors.Join(surfaces.Read(r.Config, &c), surfaces.Read(r.Settings, &s)); err != nil {
		return n, err
	}
	n = environment.SurfaceNeeds{ShmMiB: needsShm, MemoryMiB: needsMemory, Shell: true, Observations: page.Kinds(), Pictures: []string{page.KindScreenshot}, Refusals: problems(&c, &s)}
	n.ResetTime = s.InitialDelay.Truncate(time.Millisecond)
	for _, a := range page.Actions() {
		n.Actions = append(n.Actions, environment.Action{Name: a.Name, Doc: a.Doc, Schema: a.Schema()})
	}
	return n, nil
}

func start(ctx context.Context, spec environment.SurfaceSpec) (_ surfaces.Open, err error) {
	o := &open{spec: spec, frames: surfaces.Frames{Folder: spec.Frames}}
	if err = errors.Join(surfaces.Read(spec.Config, &o.config), surfaces.Read(spec.Settings, &o.task)); err != nil {
		return nil, err
	}
	if o.shell, err = sandbox.Dial(spec.Shell); err != nil {
		return nil, err
	}
	set, err := o.settings()
	if err == nil {
		o.browser, err = page.Start(ctx, page.Launch{Shell: o.shell, Program: o.config.Program, Proxy: spec.Proxy, Downloads: true, Settings: set})
	}
	if err != nil {
		return nil, errors.Join(err, o.Close(context.WithoutCancel(ctx)))
	}
	return o, nil
}

func (o *open) settings() (s page.Settings, err error) {
	c := &o.config
	s = page.Settings{
		Width: c.Width, Height: c.Height, Open: o.spec.Proxy != "",
		SlowMo: c.SlowMo, ActionTimeout: c.ActionTimeout, Settle: c.Settle, Load: c.Load,
	}
	if o.spec.Files == "" {
		return s, nil
	}
	folder := o.task.Pages
	if folder == "" {
		if folder, err = onlyFolder(o.spec.Files); err != nil {
			return s, err
		}
	}
	root, err := os.OpenRoot(filepath.Join(o.spec.Files, filepath.FromSlash(folder))) // nothing outside of it is served, whatever the links
	if err != nil {
		return s, err
	}
	s.Files = root.FS()
	return s, nil
}

// onlyFolder returns the name of the folder in dir if there is nothing else: files
// of a task come in folders with names. Otherwise it returns ".".
func onlyFolder(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) == 1 && entries[0].IsDir() {
		return entries[0].Name(), nil
	}
	return ".", err
}

// Reset implements surfaces.Open.
func (o *open) Reset(ctx context.Context, start environment.Start) (out environment.Observation, err error) {
	url := cmp.Or(o.task.URL, start.Level)
	if url == "" && o.spec.Files == "" {
		url = "about:blank"
	}
	if err = o.browser.Reset(ctx, at(url)); err != nil {
		return out, o.browser.Explained(err)
	}
	select {
	case <-time.After(o.task.InitialDelay):
	case <-ctx.Done():
		return out, context.Cause(ctx)
	}
	return o.Observe(ctx, start.Want)
}

// Observe implements surfaces.Open.
func (o *open) Observe(ctx context.Context, want []string) (out environment.Observation, err error) {
	seen, err := o.browser.Observe(ctx, want)
	if err != nil {
		return out, o.browser.Explained(err)
	}
	return o.observation(seen)
}

func (o *open) observation(seen page.Observation) (out environment.Observation, err error) {
	if out.JSON, err = json.Marshal(seen.Parts); err != nil {
		return out, err
	}
	for _, f := range []environment.Frame{{Name: page.KindScreenshot, Data: seen.Screenshot}, {Name: page.KindMarks, Data: seen.Marks}} {
		if len(f.Data) == 0 {
			continue
		}
		f.MediaType = "image/png"
		if err = o.frames.Put(&f); err != nil {
			return out, err
		}
		out.Frames = append(out.Frames, f)
	}
	return out, nil
}

// info is what the core and verifiers learn of a step, and agents do not.
type info struct {
	Refused map[string]int `json:"refused_requests,omitempty"` // so far, by host: requests that would have left the sandbox
	Dialogs []string       `json:"dialogs,omitempty"`          // that pages opened since the reset
}

// Act implements surfaces.Open.
func (o *open) Act(ctx context.Context, call environment.Call, want []string) (step environment.Step, err error) {
	actions := page.Actions()
	i := slices.IndexFunc(actions, func(a page.Action) bool { return a.Name == call.Name })
	if i < 0 {
		step.Error = fmt.Sprintf("ValueError: there is no action %q", call.Name)
		step.Observation, err = o.Observe(ctx, want)
		return step, err
	}
	seen, refused, err := o.browser.Act(ctx, &actions[i], call.Arguments, want)
	if err != nil {
		return step, o.browser.Explained(err)
	}
	step.Error = refused
	step.Done = o.task.EndOnMessage && refused == "" && (call.Name == page.ActionSay || call.Name == page.ActionInfeasible)
	said := info{Refused: o.browser.Blocked(), Dialogs: o.browser.Dialogs()}
	if len(said.Refused)+len(said.Dialogs) > 0 {
		if step.Info, err = json.Marshal(said); err != nil {
			return step, err
		}
	}
	step.Observation, err = o.observation(seen)
	return step, err
}

// Capture implements surfaces.Open.
func (o *open) Capture(ctx context.Context, c environment.Capture) ([]string, error) {
	var s capture
	err := surfaces.Read(c.Settings, &s)
	if err != nil {
		return nil, fmt.Errorf("%w: capture %s: %w", fault.ErrInvalid, c.Name, err)
	}
	var name string
	var data []byte
	switch s.Kind {
	case captureURL:
		var text string
		name = "page.txt"
		text, err = o.browser.Visit(ctx, at(s.URL))
		data = []byte(text)
	case captureScript:
		name = "value.json"
		data, err = o.browser.Evaluate(ctx, s.Script)
	case captureScreenshot:
		name = "screenshot.png"
		var seen page.Observation
		if err = o.browser.Show(ctx); err == nil {
			seen, err = o.browser.Observe(ctx, []string{page.KindScreenshot})
		}
		data = seen.Screenshot
	}
	if err == nil && len(data) == 0 {
		err = errors.New("there is nothing to capture")
	}
	if err != nil {
		return nil, fmt.Errorf("capture %s: %w", c.Name, o.browser.Explained(err))
	}
	return []string{name}, os.WriteFile(filepath.Join(c.Folder, name), data, 0o600)
}

// Close implements surfaces.Open.
func (o *open) Close(ctx context.Context) error {
	if o.browser != nil {
		o.browser.Stop(ctx)
	}
	return o.shell.Close()
}
