package docker

import (
	"os"
	"strings"
	"testing"

	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/environments/internal/engine/enginetest"
	"github.com/berth-eval/berth/plugins/environment"
)

func TestMain(m *testing.M) {
	code := m.Run()
	enginetest.Clean()
	os.Exit(code)
}

// sockets are of a daemon for tests, and only then of the machine's.
var sockets = []string{"/run/berth-engines/docker.sock", "/var/run/docker.sock"}

func made(t *testing.T) *engine.Environment {
	t.Helper()
	e := New()
	t.Cleanup(e.Close)
	return e
}

func TestEngine(t *testing.T) { enginetest.All(t, made, sockets...) }

func TestRemoteDaemonsAreRefusedWithWhy(t *testing.T) {
	for _, host := range []string{"tcp://10.0.0.1:2376", "ssh://me@there", "npipe:////./pipe/docker_engine"} {
		t.Setenv("DOCKER_HOST", host)
		r, err := made(t).Check(t.Context(), environment.Spec{Network: environment.Network{Mode: environment.NetworkNone}})
		if err != nil || len(r.Refusals) != 1 || !strings.Contains(r.Refusals[0].Detail, "mounted") {
			t.Errorf("DOCKER_HOST=%s: %+v, %v", host, r, err)
		}
	}
}

func TestADaemonThatDoesNotAnswerIsRefusedWithARemedy(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix://"+t.TempDir()+"/none.sock")
	e := made(t)
	spec := environment.Spec{Network: environment.Network{Mode: environment.NetworkNone}}
	r, err := e.Check(t.Context(), spec)
	if err != nil || len(r.Refusals) != 1 || !strings.Contains(r.Refusals[0].Detail, "start the daemon") {
		t.Errorf("check: %+v, %v", r, err)
	}
	if _, err := e.Create(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "start the daemon") {
		t.Errorf("create: %v", err)
	}
}
