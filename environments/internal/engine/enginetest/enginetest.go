// Package enginetest is what the tests of environments over container engines
// share: a built sandboxd, the images that scripts/engines-for-tests makes, and
// the conformance kit on them. It is imported by tests only.
package enginetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/environment/environmenttest"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// Base is an image that scripts/engines-for-tests gives to both engines.
const Base = "localhost/berth-test/base:1"

// Patience bounds whatever a test waits for that an engine does: one that hangs
// must be a failure or a skip that names it, never a test run without an end.
const Patience = 2 * time.Minute

// bounded is a context of a test that ends.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Sockets are where scripts/engines-for-tests has its engines, in the order in
// which they are tried.
func socket(candidates []string) string {
	for _, c := range candidates {
		if info, err := os.Stat(c); err == nil && info.Mode().Type() == os.ModeSocket {
			return "unix://" + c
		}
	}
	return ""
}

// Spec asks for a small sandbox of the engine behind the first socket that is
// there. The test is skipped, with why, where no engine answers or it has no
// image of ours.
func Spec(t *testing.T, e *engine.Environment, sockets ...string) environment.Spec {
	t.Helper()
	return SpecOf(t, e, Base, sockets...)
}

// Archive is the base image as a file of a kind, docker or oci, that
// scripts/engines-for-tests wrote. The test is skipped where it did not.
func Archive(t *testing.T, kind string) string {
	t.Helper()
	testlevel.Long(t, "test-engines")
	path := "/var/lib/berth-engines/base-" + kind + "-archive.tar"
	if _, err := os.Stat(path); err != nil {
		t.Skip("the base image is not there as a file: run scripts/engines-for-tests as root to have it tried")
	}
	return kind + "-archive:" + path
}

// useless are addresses of engines that did not answer a test: the next one does
// not wait for them again.
var useless sync.Map

// SpecOf is Spec with another image.
func SpecOf(t *testing.T, e *engine.Environment, image string, sockets ...string) environment.Spec {
	t.Helper()
	const help = ": run scripts/engines-for-tests as root to have it tried"
	testlevel.Long(t, "test-engines")
	at := socket(sockets)
	if at == "" && os.Getuid() == 0 && strings.Contains(sockets[0], "podman") {
		t.Skip("root has no server of Podman: scripts/engines-for-tests starts one for the user berth-ci: run the tests as that user")
	}
	if at == "" {
		t.Skip("no engine for tests at " + strings.Join(sockets, ", ") + help)
	}
	spec := environment.Spec{
		Image: environment.Image{Ref: image}, Config: []byte(`{"socket": "` + at + `"}`),
		Network: environment.Network{Mode: environment.NetworkNone}, Limits: environment.Limits{Pids: 256},
		Lease: time.Minute,
	}
	if why, ok := useless.Load(at); ok {
		t.Skip(why)
	}
	ctx := bounded(t)
	r, err := e.Check(ctx, spec)
	if err != nil || len(r.Refusals) > 0 {
		useless.Store(at, fmt.Sprintf("the engine at %s cannot be used%s", at, help))
		testlevel.Cannot(t, fmt.Sprintf("the engine at %s cannot be used%s", at, help), fmt.Sprintf("%+v, %v", r.Refusals, err))
	}
	for _, d := range r.Degraded {
		if d.Summary == engine.RoughPids {
			t.Logf("no limit of processes is asked for: %s", d.Detail)
			spec.Limits.Pids = 0
		}
	}
	if _, err := e.Prepare(ctx, spec.Image, spec.Config, nil); err != nil {
		testlevel.Cannot(t, fmt.Sprintf("the engine at %s has no %s%s", at, image, help), err)
	}
	return spec
}

// built is a folder with a sandboxd of this tree.
var built = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "be"); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.Background(), "go", "build", "-o", dir+"/", "github.com/berth-eval/berth/cmd/berth-sandboxd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("build sandboxd: %w\n%s", err, out)
	}
	return dir, nil
})

// Sandboxd is the path of a sandboxd made of this tree, once a process.
func Sandboxd(t *testing.T) string {
	t.Helper()
	needed = true
	dir, err := built()
	must(t, err)
	return filepath.Join(dir, "berth-sandboxd")
}

var needed bool // Sandboxd built one

// Clean removes what Sandboxd made: for TestMain.
func Clean() {
	if needed {
		dir, _ := built()
		_ = os.RemoveAll(dir)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// All tries the conformance kit, images, limits and sidecars on the engine behind the
// first socket that is there. made makes the environment, as each process has its own.
func All(t *testing.T, made func(*testing.T) *engine.Environment, sockets ...string) {
	t.Helper()
	spec := Spec(t, made(t), sockets...)
	for name, try := range map[string]func(*testing.T, func() *engine.Environment, environment.Spec){
		"kit": kit, "images": images, "limits": limits, "sidecars": sidecars,
	} {
		t.Run(name, func(t *testing.T) { try(t, func() *engine.Environment { return made(t) }, spec) })
	}
}

func kit(t *testing.T, made func() *engine.Environment, spec environment.Spec) {
	environmenttest.Run(t, environmenttest.Subject{
		Environment: made(), Capabilities: []string{environment.CapabilityImages, environment.CapabilityImageGC, environment.CapabilitySidecars}, Spec: spec, Sandboxd: Sandboxd(t),
	})
}

// Box is a sandbox with a core.
type Box struct {
	environment.Sandbox
	Core  *host.Sandbox
	shell *sandbox.Client
}

// control makes a control folder that ends with the test.
func control(t *testing.T) *host.Folder {
	t.Helper()
	top, err := os.MkdirTemp("", "be") //nolint:usetesting // short, for sockets
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	f, err := host.NewFolder(filepath.Join(top, "c"), Sandboxd(t))
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Open makes a sandbox that ends with the test.
func Open(t *testing.T, e *engine.Environment, spec environment.Spec) *Box {
	t.Helper()
	f := control(t)
	spec.Control = f.Path
	made, err := e.Create(bounded(t), spec)
	must(t, err)
	b := &Box{Sandbox: made}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
		defer cancel()
		if _, wrong := e.Destroy(ctx, b.ID); wrong != nil {
			t.Errorf("destroy: %v", wrong)
		}
	})
	b.Core, err = host.Connect(bounded(t), f, b.PID, spec.Lease)
	must(t, err)
	t.Cleanup(func() { _ = b.Core.Close() })
	b.shell, err = b.Core.Shell(t.Context(), host.Session{ID: "test", Dir: "/"})
	must(t, err)
	t.Cleanup(func() { _ = b.shell.Close() })
	return b
}

// Sh runs a script that must succeed and returns what it printed.
func (b *Box) Sh(t *testing.T, script string) string {
	t.Helper()
	var out strings.Builder
	r, err := b.shell.Exec(bounded(t), sandbox.Command{Argv: []string{"/bin/sh", "-c", script}, Stdout: &out, Stderr: &out})
	if err != nil || !r.OK() {
		t.Errorf("%s: %+v, %v\n%s", script, r, err, out.String())
	}
	return out.String()
}
