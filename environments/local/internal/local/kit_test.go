package local

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/environments/local/internal/base"
	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/modetest"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/environment/environmenttest"
)

func TestMain(m *testing.M) {
	os.Exit(modetest.Main(m, "../../local-init", "../../../../cmd/berth-sandboxd"))
}

// made is the plugin with state of its own.
func made(t *testing.T) *Environment {
	t.Helper()
	top, err := os.MkdirTemp("", "bl") //nolint:usetesting // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	cache, err := modetest.Cache()
	if err != nil {
		t.Fatal(err)
	}
	e := New(Options{
		Process: modetest.Process, Init: modetest.Init(),
		Places: base.Places{UID: modetest.Process.UID, Temp: top, Cache: []string{cache}},
	})
	t.Cleanup(func() {
		if err := errors.Join(e.Close(), os.RemoveAll(top)); err != nil {
			t.Error(err)
		}
	})
	return e
}

func TestConformance(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		environmenttest.Run(t, environmenttest.Subject{
			Environment: made(t), Sandboxd: filepath.Join(modetest.Tools, "berth-sandboxd"),
			Spec: environment.Spec{Limits: environment.Limits{Pids: 256, StorageMiB: 256}},
		})
	})
}
