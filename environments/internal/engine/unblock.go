package engine

import (
	"context"
	"time"

	"github.com/berth-eval/berth/environments/internal/engine/orphan"
)

// blockedAfter is how long an engine may take before containers of ours that block
// it are looked for.
const blockedAfter = 5 * time.Second

// unblocked is an engine of which no request waits for a container of ours that can
// never start: see [orphan.EndStuck].
type unblocked struct{ Engine }

// guard makes a request, and looks for what blocks the engine while there is no
// answer.
func guard(request func() error) error {
	done := make(chan struct{})
	defer close(done)
	go func() {
		t := time.NewTicker(blockedAfter)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				orphan.EndStuck(ourNames)
			}
		}
	}()
	return request()
}

func (u unblocked) Facts(ctx context.Context) (f Facts, err error) {
	err = guard(func() error { f, err = u.Engine.Facts(ctx); return err })
	return f, err
}

func (u unblocked) Start(ctx context.Context, name string) error {
	return guard(func() error { return u.Engine.Start(ctx, name) })
}

func (u unblocked) State(ctx context.Context, name string) (s State, err error) {
	err = guard(func() error { s, err = u.Engine.State(ctx, name); return err })
	return s, err
}

func (u unblocked) Kill(ctx context.Context, name string) error {
	return guard(func() error { return u.Engine.Kill(ctx, name) })
}

func (u unblocked) Wait(ctx context.Context, name string) error {
	return guard(func() error { return u.Engine.Wait(ctx, name) })
}

func (u unblocked) Unmount(ctx context.Context, name string) error {
	return guard(func() error { return u.Engine.Unmount(ctx, name) })
}

func (u unblocked) Remove(ctx context.Context, name string) error {
	return guard(func() error { return u.Engine.Remove(ctx, name) })
}

func (u unblocked) Containers(ctx context.Context, labels map[string]string) (all []Listed, err error) {
	err = guard(func() error { all, err = u.Engine.Containers(ctx, labels); return err })
	return all, err
}
