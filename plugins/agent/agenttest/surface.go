package agenttest

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/surface/counter"
	"github.com/berth-eval/berth/plugins/surface/host"
	"github.com/berth-eval/berth/plugins/task"
)

// counted opens the surface of the kit for a session: a number that is to be
// brought to 10, and actions that add to it and clear it. It returns its address,
// and a function that revokes it.
func counted(t *conformance.T) (address string, revoke func()) {
	const what = "the kit's surface"
	ctx, game, dir := t.Context(), &counter.Game{}, t.TempDir()
	needs, err := game.Needs(ctx, environment.SurfaceRequest{})
	t.Must(what, err)
	open, err := host.Open(ctx, host.Options{
		Plugin: game, Needs: host.Needs{"main": needs}, Dir: t.TempDir(), Sockets: filepath.Join(dir, "p"), Frames: filepath.Join(dir, "frames"),
		Append: func(surface.Line) {}, Now: time.Now,
	})
	t.Must(what, err)
	t.Must(what, open.Begin(ctx, &task.Stage{Name: "main", Surface: &task.Surface{}}, 1))
	door, err := open.NewDoor(filepath.Join(dir, "f"))
	t.Must(what, err)
	door.Open(ctx)
	t.Cleanup(func(ctx context.Context) { t.Check(what, errors.Join(door.Shut(ctx), open.Close(ctx))) })
	return door.Address(), func() { _ = door.Close(context.WithoutCancel(ctx)) } // without a deadline it does not fail
}
