// Package surfaces is what plugins with surfaces share: each surface that is open has an
// id, by which its calls find it, and large pictures go into files.
package surfaces

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
)

// Open is an open surface. Its calls, but for Close, come one after another.
type Open interface {
	Reset(ctx context.Context, s environment.Start) (environment.Observation, error)
	Observe(ctx context.Context, want []string) (environment.Observation, error)
	Act(ctx context.Context, c environment.Call, want []string) (environment.Step, error)
	Capture(ctx context.Context, c environment.Capture) ([]string, error)
	Close(ctx context.Context) error
}

// Kind implements environment.Surface.
type Kind struct {
	Name  string // of the plugin
	Ask   func(r environment.SurfaceRequest) (environment.SurfaceNeeds, error)
	Start func(ctx context.Context, s environment.SurfaceSpec) (Open, error)

	mu    sync.Mutex
	open  map[string]*one
	count int // surfaces so far
}

type one struct {
	sync.Mutex
	Open
}

// Needs implements environment.Surface.
func (k *Kind) Needs(_ context.Context, r environment.SurfaceRequest) (environment.SurfaceNeeds, error) {
	return k.Ask(r)
}

// OpenSurface implements environment.Surface.
func (k *Kind) OpenSurface(ctx context.Context, s environment.SurfaceSpec) (string, error) {
	o, err := k.Start(ctx, s)
	if err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.open == nil {
		k.open = map[string]*one{}
	}
	k.count++
	id := fmt.Sprintf("%s-%d", k.Name, k.count)
	k.open[id] = &one{Open: o}
	return id, nil
}

// with calls f with an open surface.
func with[T any](ctx context.Context, k *Kind, id string, f func(Open) (T, error)) (v T, err error) {
	k.mu.Lock()
	o := k.open[id]
	k.mu.Unlock()
	if o == nil {
		return v, fmt.Errorf("%w: surface %q", environment.ErrNoSandbox, id)
	}
	o.Lock()
	defer o.Unlock()
	if ctx.Err() != nil {
		return v, context.Cause(ctx)
	}
	return f(o.Open)
}

// Reset implements environment.Surface.
func (k *Kind) Reset(ctx context.Context, id string, s environment.Start) (environment.Observation, error) {
	return with(ctx, k, id, func(o Open) (environment.Observation, error) { return o.Reset(ctx, s) })
}

// Observe implements environment.Surface.
func (k *Kind) Observe(ctx context.Context, id string, want []string) (environment.Observation, error) {
	return with(ctx, k, id, func(o Open) (environment.Observation, error) { return o.Observe(ctx, want) })
}

// Act implements environment.Surface.
func (k *Kind) Act(ctx context.Context, id string, c environment.Call, want []string) (environment.Step, error) {
	return with(ctx, k, id, func(o Open) (environment.Step, error) { return o.Act(ctx, c, want) })
}

// Capture implements environment.Surface.
func (k *Kind) Capture(ctx context.Context, id string, c environment.Capture) ([]string, error) {
	return with(ctx, k, id, func(o Open) ([]string, error) { return o.Capture(ctx, c) })
}

// CloseSurface implements environment.Surface. It does not wait for other calls.
func (k *Kind) CloseSurface(ctx context.Context, id string) error {
	k.mu.Lock()
	o := k.open[id]
	delete(k.open, id)
	k.mu.Unlock()
	if o == nil {
		return nil
	}
	return o.Close(ctx)
}

// Read decodes a configuration, or the settings of a task; each may be absent.
func Read(text json.RawMessage, into any) error {
	if err := config.Decode(text, into); err != nil {
		return fmt.Errorf("%w: %w", fault.ErrBadConfig, err)
	}
	return nil
}

// maxInline is the size of a frame that is sent with its observation, in bytes.
const maxInline = 1 << 20

// Frames writes the pictures of a surface. The zero value needs Folder.
type Frames struct {
	Folder string
	count  int // files
}

// Put puts the picture of a frame into a file if it is large.
func (f *Frames) Put(p *environment.Frame) error {
	if len(p.Data) <= maxInline {
		return nil
	}
	f.count++
	p.Path = fmt.Sprint(f.count)
	err := os.WriteFile(filepath.Join(f.Folder, p.Path), p.Data, 0o600)
	p.Data = nil
	return err
}
