package agenttest

import (
	"context"
	"errors"
	"os"
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
func counted(ctx context.Context, t *conformance.T) (address string, revoke func()) {
	game := &counter.Game{}
	needs, err := game.Needs(ctx, environment.SurfaceRequest{})
	if err != nil {
		t.Fatalf("the kit's surface: %v", err)
	}
	short, err := os.MkdirTemp("", "kit") // the path of a socket is short
	if err != nil {
		t.Fatalf("the kit's surface: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	open, err := host.Open(ctx, host.Options{
		Plugin: game, Needs: host.Needs{"main": needs}, Dir: t.TempDir(), Sockets: filepath.Join(short, "p"), Frames: filepath.Join(t.TempDir(), "frames"),
		Append: func(surface.Line) {}, Now: time.Now,
	})
	if err == nil {
		err = open.Begin(ctx, &task.Stage{Name: "main", Surface: &task.Surface{}}, 1)
	}
	var door *host.Door
	if err == nil {
		door, err = open.NewDoor(filepath.Join(short, "f"))
	}
	if err != nil {
		t.Fatalf("the kit's surface: %v", err)
	}
	door.Open(ctx)
	revoke = func() { _ = door.Close(context.WithoutCancel(ctx)) } // without a deadline it does not fail
	t.Cleanup(func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), conformance.Patience(10*time.Second))
		defer cancel()
		if err := errors.Join(door.Shut(end), open.Close(end)); err != nil {
			t.Errorf("the kit's surface: %v", err)
		}
	})
	return door.Address(), revoke
}
