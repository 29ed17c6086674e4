package local

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/environments/local/internal/base"
	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/maker"
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
		Places: places(top, cache),
	})
	t.Cleanup(func() {
		if err := errors.Join(e.Close(), os.RemoveAll(top)); err != nil {
			t.Error(err)
		}
	})
	return e
}

// places are folders of a test.
func places(top string, caches ...string) base.Places {
	in := func(dir string) func() (string, error) { return func() (string, error) { return dir, nil } }
	p := base.Places{Top: in(top)}
	for _, c := range caches {
		p.Cache = append(p.Cache, in(c))
	}
	return p
}

func TestConformance(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		environmenttest.Run(t, environmenttest.Subject{
			Environment: made(t), Sandboxd: filepath.Join(modetest.Tools, "berth-sandboxd"),
			Spec: environment.Spec{Limits: environment.Limits{Pids: 256, StorageMiB: 256}},
		})
	})
}

func TestAnImageIsNoLargerThanTheMemory(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "image")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := &limited{f, 10}
	if _, err := l.Write(make([]byte, 10)); err != nil {
		t.Error(err)
	}
	if _, err := l.Write(make([]byte, 1)); !errors.Is(err, environment.ErrBuildFailed) {
		t.Errorf("one byte more: %v", err)
	}
	if m := maker.Memory(); m < 64<<20 || m > 1<<50 {
		t.Errorf("this machine has %d bytes", m)
	}
}
