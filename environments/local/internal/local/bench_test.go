package local

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-eval/berth/environments/local/internal/modetest"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// BenchmarkSandbox is a sandbox from Create to the end of its first command,
// and its Destroy, as the user who runs it; both are reported apart.
func BenchmarkSandbox(b *testing.B) {
	top, err := os.MkdirTemp("", "bl") //nolint:usetesting // short, for sockets
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(top)
	e := New(Options{Process: modetest.Process, Init: modetest.Init(), Places: places(top)})
	defer e.Close()
	binary, _, err := host.Install(filepath.Join(top, "bin"), filepath.Join(modetest.Tools, "berth-sandboxd"))
	if err != nil {
		b.Fatal(err)
	}
	var create, connect, command, destroy time.Duration
	one := func() error {
		f, err := host.NewFolder(filepath.Join(top, "c"), binary)
		if err != nil {
			return err
		}
		defer f.Close()
		spec := environment.Spec{Network: environment.Network{Mode: environment.NetworkNone}, Control: f.Path, Lease: time.Minute}
		t := time.Now()
		made, err := e.Create(b.Context(), spec)
		if err != nil {
			return err
		}
		create += time.Since(t)
		t = time.Now()
		core, err := host.Connect(b.Context(), f, made.PID, spec.Lease)
		if err != nil {
			return err
		}
		defer core.Close()
		connect += time.Since(t)
		t = time.Now()
		shell, err := core.Shell(b.Context(), host.Session{ID: "bench"})
		if err != nil {
			return err
		}
		defer shell.Close()
		if _, err = shell.Exec(b.Context(), sandbox.Command{Argv: []string{"true"}, Stdout: io.Discard}); err != nil {
			return err
		}
		command += time.Since(t)
		t = time.Now()
		_, err = e.Destroy(b.Context(), made.ID)
		destroy += time.Since(t)
		return err
	}
	if err := one(); err != nil { // makes the copies of the host
		b.Fatal(err)
	}
	create, connect, command, destroy = 0, 0, 0, 0
	n := 0
	for b.Loop() {
		n++
		if err := one(); err != nil {
			b.Fatal(err)
		}
	}
	for name, d := range map[string]time.Duration{"create": create, "connect": connect, "command": command, "destroy": destroy} {
		b.ReportMetric(float64(d.Microseconds())/1000/float64(n), name+"-ms/op")
	}
}
