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
	"sync"
	"time"

	"github.com/berth-eval/berth/environments/internal/page"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// What Chromium needs, in MiB.
const (
	needsShm    = 0 // --disable-dev-shm-usage
	needsMemory = 512
)

// surfaces are the open ones.
type surfaces struct {
	mu   sync.Mutex
	all  map[string]*open
	next int
}

func newSurface() *surfaces { return &surfaces{all: map[string]*open{}} }

// open is one browser in a sandbox.
type open struct {
	spec    environment.SurfaceSpec
	config  Config
	task    settings
	shell   *sandbox.Client
	browser *page.Process
	frames  int
}

// Needs implements environment.Surface.
func (*surfaces) Needs(_ context.Context, r environment.SurfaceRequest) (n environment.SurfaceNeeds, err error) {
	var c Config
	var s settings
	if err = errors.Join(read(r.Config, &c), read(r.Settings, &s)); err != nil {
		return n, err
	}
	n = environment.SurfaceNeeds{ShmMiB: needsShm, MemoryMiB: needsMemory, Shell: true, Observations: page.Kinds(), Pictures: []string{page.KindScreenshot}, Refusals: problems(&c, &s)}
	n.ResetTime = s.InitialDelay.Truncate(time.Millisecond)
	for _, a := range page.Actions() {
		n.Actions = append(n.Actions, environment.Action{Name: a.Name, Doc: a.Doc, Schema: a.Schema()})
	}
	return n, nil
}

// OpenSurface implements environment.Surface.
func (e *surfaces) OpenSurface(ctx context.Context, spec environment.SurfaceSpec) (id string, err error) {
	o := &open{spec: spec}
	if err = errors.Join(read(spec.Config, &o.config), read(spec.Settings, &o.task)); err != nil {
		return "", err
	}
	if o.shell, err = sandbox.Dial(spec.Shell); err != nil {
		return "", err
	}
	set, err := o.settings()
	if err == nil {
		o.browser, err = page.Start(ctx, page.Launch{Shell: o.shell, Program: o.config.Program, Proxy: spec.Proxy, Downloads: true, Settings: set})
	}
	if err != nil {
		return "", errors.Join(err, o.close(context.WithoutCancel(ctx)))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.next++
	id = fmt.Sprintf("browser-%d", e.next)
	e.all[id] = o
	return id, nil
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

func (e *surfaces) find(id string) (*open, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o := e.all[id]; o != nil {
		return o, nil
	}
	return nil, fmt.Errorf("%w: surface %q", environment.ErrNoSandbox, id)
}

// Reset implements environment.Surface.
func (e *surfaces) Reset(ctx context.Context, id string, start environment.Start) (out environment.Observation, err error) {
	o, err := e.find(id)
	if err != nil {
		return out, err
	}
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
	return e.Observe(ctx, id, start.Want)
}

// Observe implements environment.Surface.
func (e *surfaces) Observe(ctx context.Context, id string, want []string) (out environment.Observation, err error) {
	o, err := e.find(id)
	if err != nil {
		return out, err
	}
	seen, err := o.browser.Observe(ctx, want)
	if err != nil {
		return out, o.browser.Explained(err)
	}
	return o.observation(seen)
}

// maxInline is the size of a frame that is sent with its observation, in bytes.
const maxInline = 1 << 20

func (o *open) observation(seen page.Observation) (out environment.Observation, err error) {
	if out.JSON, err = json.Marshal(seen.Parts); err != nil {
		return out, err
	}
	for _, f := range []environment.Frame{{Name: page.KindScreenshot, Data: seen.Screenshot}, {Name: page.KindMarks, Data: seen.Marks}} {
		if len(f.Data) == 0 {
			continue
		}
		f.MediaType = "image/png"
		if len(f.Data) > maxInline {
			o.frames++
			f.Path = fmt.Sprintf("%d.png", o.frames)
			if err = os.WriteFile(filepath.Join(o.spec.Frames, f.Path), f.Data, 0o600); err != nil {
				return out, err
			}
			f.Data = nil
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

// Act implements environment.Surface.
func (e *surfaces) Act(ctx context.Context, id string, call environment.Call, want []string) (step environment.Step, err error) {
	o, err := e.find(id)
	if err != nil {
		return step, err
	}
	actions := page.Actions()
	i := slices.IndexFunc(actions, func(a page.Action) bool { return a.Name == call.Name })
	if i < 0 {
		step.Error = fmt.Sprintf("ValueError: there is no action %q", call.Name)
		step.Observation, err = e.Observe(ctx, id, want)
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

// Capture implements environment.Surface.
func (e *surfaces) Capture(ctx context.Context, id string, c environment.Capture) ([]string, error) {
	o, err := e.find(id)
	if err != nil {
		return nil, err
	}
	var s capture
	if err = read(c.Settings, &s); err != nil {
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

// CloseSurface implements environment.Surface.
func (e *surfaces) CloseSurface(ctx context.Context, id string) error {
	e.mu.Lock()
	o := e.all[id]
	delete(e.all, id)
	e.mu.Unlock()
	if o == nil {
		return nil
	}
	return o.close(ctx)
}

// close ends the browser.
func (o *open) close(ctx context.Context) error {
	if o.browser != nil {
		o.browser.Stop(ctx)
	}
	return o.shell.Close()
}
