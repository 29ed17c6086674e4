package main_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m.Run, sandboxtest.Inside{})) }

// The program as it is shipped: one static file of a few megabytes, which needs
// neither a libc nor a shell in the image.
func TestShippedBinary(t *testing.T) {
	t.Parallel()
	// Not t.TempDir: where the tests run as root the sandbox's ids must be able
	// to link from there.
	dir, err := os.MkdirTemp("", "bb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary := filepath.Join(dir, "sandboxd")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, failed := build.CombinedOutput(); failed != nil {
		t.Fatalf("%v: %s", failed, out)
	}
	f, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	libraries, err := f.ImportedLibraries()
	if err != nil || len(libraries) > 0 || f.Section(".interp") != nil {
		t.Errorf("not static: %v, %v", libraries, err)
	}
	_ = f.Close()
	if info, err := os.Stat(binary); err != nil || info.Size() > 16<<20 {
		t.Errorf("%v, %v: larger than 16 MiB", info, err)
	}
	for name, o := range map[string]sandboxtest.Options{
		"control folder": {Binary: binary}, "one stream": {Binary: binary, Stream: true},
		"as an entrypoint": {Binary: binary, Entrypoint: true}, "as an entrypoint, one stream": {Binary: binary, Entrypoint: true, Stream: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := sandboxtest.Start(t, o)
			shipped(t, b)
		})
	}
}

// shipped looks at a sandbox of the shipped binary.
func shipped(t *testing.T, b *sandboxtest.Box) {
	t.Helper()
	var out bytes.Buffer
	c := b.Shell("agent")
	r, err := c.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", "env; grep CapBnd /proc/1/status"}, Stdout: &out})
	if err != nil || !r.OK() {
		t.Errorf("%+v, %v, %q", r, err, out.String())
	}
	if s := out.String(); strings.Contains(s, "OF_THE_ENGINE") || !strings.HasSuffix(s, "a80425fb\n") || b.Hello.BoundingCapabilities != 0xa80425fb {
		t.Errorf("a command sees %q, Hello says %#x", s, b.Hello.BoundingCapabilities)
	}
	rss, threads := uses(t, b)
	if rss > 32<<20 {
		t.Errorf("%d MiB of memory", rss>>20)
	}
	for range 300 {
		if r, err = c.Exec(t.Context(), sandbox.Command{Argv: []string{"true"}}); err != nil || !r.OK() {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if after, many := uses(t, b); after > 48<<20 || many > threads+2 {
		t.Errorf("after 300 commands %d MiB of memory and %d threads, before %d and %d", after>>20, many, rss>>20, threads)
	}
}

// uses returns the memory of sandboxd in bytes, and its threads.
func uses(t *testing.T, b *sandboxtest.Box) (rss int64, threads int) {
	t.Helper()
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", b.Init))
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	if _, err = fmt.Sscan(string(statm), &size, &rss); err != nil {
		t.Fatal(err)
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", b.Init))
	if err != nil {
		t.Fatal(err)
	}
	return rss * int64(os.Getpagesize()), len(tasks)
}

func TestOutsideOfASandboxItSaysSo(t *testing.T) {
	t.Parallel()
	if os.Getpid() == 1 {
		t.Skip("this is PID 1")
	}
	binary := filepath.Join(t.TempDir(), "sandboxd")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Args[0] = "berth-sandboxd" // its second half
	out, err := cmd.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("must be PID 1")) {
		t.Errorf("got %v, %q", err, out)
	}
}
