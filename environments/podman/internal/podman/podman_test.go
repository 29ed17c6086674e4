package podman

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/environments/internal/engine/enginetest"
	"github.com/berth-eval/berth/internal/testlevel"
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

func TestEngine(t *testing.T) { enginetest.All(t, made, candidates()...) }

// store gives the servers that this test starts a store and settings of their
// own, which it removes with what user namespaces own in it.
func store(t *testing.T) {
	t.Helper()
	binary, err := exec.LookPath("podman")
	if err != nil {
		t.Skip("podman is not installed: run scripts/engines-for-tests as root to have it tried")
	}
	if os.Getuid() == 0 {
		t.Skip("a server of its own is not for root: run the tests as another user")
	}
	dir, err := os.MkdirTemp("/var/tmp", "be") //nolint:usetesting // not on a tmpfs, and not removed as this user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), enginetest.Patience)
		defer cancel()
		if text, err := exec.CommandContext(ctx, binary, "unshare", "rm", "-rf", dir).CombinedOutput(); err != nil {
			t.Logf("%s stays: %v %s", dir, err, text)
		}
	})
	conf := filepath.Join(dir, "containers")
	if err := os.Mkdir(conf, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"containers.conf": "[engine]\nevents_logger = \"file\"\ncgroup_manager = \"cgroupfs\"\n" + runtime(),
		"storage.conf":    fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n", dir+"/root", dir+"/run"),
	} {
		if err := os.WriteFile(filepath.Join(conf, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("XDG_CONFIG_HOME", dir)
}

// runtime prefers runc: crun refuses hosts with both versions of control groups.
func runtime() string {
	if _, err := exec.LookPath("runc"); err != nil {
		return ""
	}
	return "runtime = \"runc\"\n"
}

// kill ends a server as a crash would, and waits until it is gone.
func kill(t *testing.T, s *servers) {
	t.Helper()
	if s.own == nil {
		return
	}
	if err := s.own.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	select {
	case <-s.ended:
	case <-time.After(enginetest.Patience):
		t.Error("the server does not end when it is killed")
	}
}

// A user without a unit of systemd, as in a job on a cluster.
func TestAServerOfItsOwnIsStartedAndReplacedWhenItDies(t *testing.T) {
	image := enginetest.Archive(t, "docker")
	store(t)
	s := &servers{}
	start := func() string {
		t.Helper()
		s.mu.Lock()
		defer s.mu.Unlock()
		address, err := s.start()
		if err != nil {
			testlevel.Cannot(t, "podman does not work for this user: run scripts/engines-for-tests as root to have it tried", err)
		}
		s.found = address
		return address
	}
	address := start()
	t.Cleanup(func() { kill(t, s) })
	e := engine.New(engine.Options{Name: "podman", Default: func() (string, error) { return address, nil }, Dial: dial, Help: help})
	t.Cleanup(e.Close)
	spec := enginetest.SpecOf(t, e, image, strings.TrimPrefix(address, "unix://"))
	spec.Config = nil
	b := enginetest.Open(t, e, spec)
	kill(t, s)
	if got := b.Sh(t, "echo on"); got != "on\n" {
		t.Errorf("without a server the sandbox says %q", got)
	}
	if again := start(); again != address {
		t.Errorf("the next server is at %s, the first was at %s", again, address)
	}
	ctx, cancel := context.WithTimeout(t.Context(), enginetest.Patience)
	defer cancel()
	if r, err := e.Check(ctx, spec); err != nil || len(r.Refusals) > 0 {
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
	for _, tt := range []struct {
		name, info string
		want       engine.Facts // Degraded, How, About and NoPublic left out
	}{
		{
			name: "rootless with groups that systemd gave to the user",
			info: `"cgroupVersion": "v2", "cgroupManager": "systemd", "cgroupControllers": ["memory", "pids"], "security": {"rootless": true}`,
			want: engine.Facts{Memory: true, Pids: true},
		},
		{
			name: "rootless without a session of systemd, and with one id",
			info: `"cgroupVersion": "v2", "cgroupManager": "cgroupfs", "cgroupControllers": ["memory", "pids"],
				"security": {"rootless": true, "selinuxEnabled": true}, "idMappings": {"uidmap": [{"size": 1}]}`,
			want: engine.Facts{OneID: true, SELinux: true},
		},
		{
			name: "root with groups of version 1",
			info: `"cgroupVersion": "v1"`,
			want: engine.Facts{CPU: true, Memory: true, Pids: true},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var i info
			if err := json.Unmarshal([]byte(`{"host": {`+tt.info+`}}`), &i); err != nil {
				t.Fatal(err)
			}
			got := factsOf(i)
			if tt.want.Memory != (len(got.Degraded) == 0) {
				t.Errorf("memory is kept: %v; problems: %+v", got.Memory, got.Degraded)
			}
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

func TestAShortNameFindsAnImageOfThisMachine(t *testing.T) {
	e := made(t)
	spec := enginetest.Spec(t, e, candidates()...)
	short := strings.TrimPrefix(enginetest.Base, "localhost/")
	never := []byte(strings.Replace(string(spec.Config), "}", `, "pull": "never"}`, 1))
	im, err := e.Prepare(t.Context(), environment.Image{Ref: short}, never, nil)
	if err != nil || im.Digest == "" {
		t.Errorf("%s: %+v, %v", short, im, err)
	}
	if _, err = e.Prepare(t.Context(), environment.Image{Ref: "docker.io/" + short}, never, nil); !errors.Is(err, environment.ErrBadImage) {
		t.Errorf("docker.io/%s is another image: %v", short, err)
	}
}
