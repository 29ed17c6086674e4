//go:build remote && containers_image_openpgp && exclude_graphdriver_btrfs

package podman

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/containers/podman/v5/libpod/define"
	"go.podman.io/storage/pkg/idtools"

	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/environments/internal/engine/enginetest"
	"github.com/berth-eval/berth/plugins/environment"
)

func TestMain(m *testing.M) {
	code := m.Run()
	enginetest.Clean()
	os.Exit(code)
}

func made(t *testing.T) *engine.Environment {
	t.Helper()
	e := New()
	t.Cleanup(e.Close)
	return e
}

func TestConformance(t *testing.T) {
	e := made(t)
	enginetest.Kit(t, e, enginetest.Spec(t, e, candidates()...))
}

func TestImages(t *testing.T) {
	enginetest.Images(t, func() *engine.Environment { return made(t) }, enginetest.Spec(t, made(t), candidates()...))
}

// A user without a unit of systemd, as in a job on a cluster.
func TestAServerOfItsOwnIsStartedAndReplacedWhenItDies(t *testing.T) {
	if _, err := exec.LookPath("podman"); err != nil {
		t.Skip("podman is not installed: run scripts/engines-for-tests as root to have it tried")
	}
	s := &servers{}
	start := func() string {
		t.Helper()
		s.mu.Lock()
		defer s.mu.Unlock()
		address, err := s.start()
		if err != nil {
			t.Fatal(err)
		}
		s.found = address
		return address
	}
	address := start()
	t.Cleanup(func() { _ = s.own.Process.Kill(); <-s.ended })
	e := engine.New(engine.Options{Name: "podman", Default: func() (string, error) { return address, nil }, Dial: dial, Help: help})
	t.Cleanup(e.Close)
	spec := enginetest.Spec(t, e, strings.TrimPrefix(address, "unix://"))
	spec.Config = nil
	b := enginetest.Open(t, e, spec)
	if err := s.own.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the server does not end when it is killed")
	}
	if got := b.Sh(t, "echo on"); got != "on\n" {
		t.Errorf("without a server the sandbox says %q", got)
	}
	if again := start(); again != address {
		t.Errorf("the next server is at %s, the first was at %s", again, address)
	}
	if r, err := e.Check(t.Context(), spec); err != nil || len(r.Refusals) > 0 {
		t.Errorf("with the next server: %+v, %v", r, err)
	}
}

func TestRemoteServersAreRefusedWithWhy(t *testing.T) {
	t.Setenv("CONTAINER_HOST", "ssh://me@there/run/podman.sock")
	r, err := made(t).Check(t.Context(), environment.Spec{Network: environment.Network{Mode: environment.NetworkNone}})
	if err != nil || len(r.Refusals) != 1 || !strings.Contains(r.Refusals[0].Detail, "mounted") {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestWhatAServerSaysOfItself(t *testing.T) {
	one := []idtools.IDMap{{Size: 1}}
	for _, tt := range []struct {
		name string
		info define.Info
		want engine.Facts // Degraded, How and NoPublic left out
	}{
		{name: "nothing at all", want: engine.Facts{}},
		{
			name: "rootless with groups that systemd gave to the user",
			info: define.Info{Host: &define.HostInfo{
				CgroupsVersion: "v2", CgroupManager: "systemd", CgroupControllers: []string{"memory", "pids"}, Security: define.SecurityInfo{Rootless: true},
			}},
			want: engine.Facts{Memory: true, Pids: true},
		},
		{
			name: "rootless without a session of systemd, and with one id",
			info: define.Info{Host: &define.HostInfo{
				CgroupsVersion: "v2", CgroupManager: "cgroupfs", CgroupControllers: []string{"memory", "pids"},
				Security: define.SecurityInfo{Rootless: true, SELinuxEnabled: true}, IDMappings: define.IDMappings{UIDMap: one},
			}},
			want: engine.Facts{OneID: true, SELinux: true},
		},
		{
			name: "root with groups of version 1",
			info: define.Info{Host: &define.HostInfo{CgroupsVersion: "v1"}},
			want: engine.Facts{CPU: true, Memory: true, Pids: true},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := factsOf(&tt.info)
			if (tt.want.Memory || tt.info.Host == nil) != (len(got.Degraded) == 0) {
				t.Errorf("memory is kept: %v; problems: %+v", got.Memory, got.Degraded)
			}
			got.Degraded, got.How, got.NoPublic = nil, "", ""
			if got.CPU != tt.want.CPU || got.Memory != tt.want.Memory || got.Pids != tt.want.Pids || got.OneID != tt.want.OneID || got.SELinux != tt.want.SELinux {
				t.Errorf("got %+v; want %+v", got, tt.want)
			}
		})
	}
}

func TestAServerThatIsGoneIsRefusedWithARemedy(t *testing.T) {
	address := "unix://" + t.TempDir() + "/none.sock"
	e := made(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := e.Check(ctx, environment.Spec{
		Config: []byte(`{"socket": "` + address + `"}`), Network: environment.Network{Mode: environment.NetworkNone},
	})
	if err != nil || len(r.Refusals) != 1 || !strings.Contains(r.Refusals[0].Detail, "podman system service") {
		t.Errorf("got %+v, %v", r, err)
	}
}
