package enginetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/plugins/environment"
)

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

func (l *lines) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // others read it in an image
			t.Fatal(err)
		}
	}
	return dir
}

// Images tries what an engine does about images. again makes another
// environment, as another process has it.
func Images(t *testing.T, again func() *engine.Environment, spec environment.Spec) {
	t.Helper()
	stamp := fmt.Sprint(time.Now().UnixNano()) // a content that was never built
	t.Run("a Dockerfile is built once however many ask", func(t *testing.T) {
		builtOnce(t, again, spec, stamp)
	})
	t.Run("a Dockerfile that fails is its author's fault, and says why", func(t *testing.T) {
		var log lines
		dir := folder(t, map[string]string{"Dockerfile": "FROM " + Base + "\nRUN echo " + stamp + " says no; exit 3\n"})
		_, err := again().Prepare(bounded(t), environment.Image{Build: dir}, spec.Config, log.add)
		if !errors.Is(err, environment.ErrBuildFailed) || log.count(stamp+" says no") == 0 {
			t.Errorf("got %v, log %q", err, log.all)
		}
	})
	t.Run("a build that hangs ends at its deadline", func(t *testing.T) {
		dir := folder(t, map[string]string{"Dockerfile": "FROM " + Base + "\nRUN echo " + stamp + "; sleep 300\n"})
		began := time.Now()
		_, err := again().Prepare(bounded(t), environment.Image{Build: dir, Timeout: 3 * time.Second}, spec.Config, nil)
		if !errors.Is(err, environment.ErrBuildFailed) || time.Since(began) > 30*time.Second || !strings.Contains(err.Error(), "3s") {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
	for _, kind := range []string{"docker", "oci"} {
		t.Run("an archive of kind "+kind+" is loaded, or refused by what the engine can read", func(t *testing.T) { loaded(t, again(), spec, kind) })
	}
	t.Run("an image that nobody has is not tried again", func(t *testing.T) {
		for _, ref := range []string{"localhost/berth-test/none:1", "Not a Reference", "oci-archive:/no/such.tar"} {
			_, err := again().Prepare(bounded(t), environment.Image{Ref: ref}, spec.Config, nil)
			if !errors.Is(err, environment.ErrBadImage) && !errors.Is(err, environment.ErrRefused) {
				t.Errorf("%s: got %v", ref, err)
			}
		}
	})
}

func loaded(t *testing.T, e *engine.Environment, spec environment.Spec, kind string) {
	spec.Image = environment.Image{Ref: Archive(t, kind)}
	im, err := e.Prepare(bounded(t), spec.Image, spec.Config, nil)
	if kind == "oci" && errors.Is(err, environment.ErrBadImage) && strings.Contains(err.Error(), "save the image as docker-archive") {
		return
	}
	if err != nil || im.Digest == "" {
		t.Fatalf("got %+v, %v", im, err)
	}
	spec.Image = im
	if out := Open(t, e, spec).Sh(t, "busybox | head -n 1"); !strings.HasPrefix(out, "BusyBox") {
		t.Errorf("inside: %q", out)
	}
}

func builtOnce(t *testing.T, again func() *engine.Environment, spec environment.Spec, stamp string) {
	dir := folder(t, map[string]string{
		"Dockerfile":    "FROM " + Base + "\nWORKDIR /work\nENV STAMP=" + stamp + "\nCOPY . /work/\nRUN echo built\nUSER agent\nENTRYPOINT [\"/bin/echo\"]\nCMD [\"x\"]\n",
		"kept":          stamp,
		"left":          "out",
		".dockerignore": "left\n",
	})
	var log lines
	var work sync.WaitGroup
	got := make([]environment.Image, 8)
	for i := range got {
		work.Go(func() {
			var err error
			if got[i], err = again().Prepare(bounded(t), environment.Image{Build: dir}, spec.Config, log.add); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, im := range got[1:] {
		if im != got[0] || im.Digest == "" {
			t.Errorf("got %+v and %+v", got[0], im)
		}
	}
	if n := log.count("build " + dir); n != 1 {
		t.Errorf("built %d times: %q", n, log.all)
	}
	e := again()
	spec.Image = got[0]
	b := Open(t, e, spec)
	if f := b.Image; f.User != "agent" || f.Workdir != "/work" || f.Env["STAMP"] != stamp || !slices.Equal(f.Entrypoint, []string{"/bin/echo"}) || !slices.Equal(f.Cmd, []string{"x"}) {
		t.Errorf("the image says %+v", f)
	}
	if out := b.Sh(t, "cat /work/kept; ls /work; id -u"); out != stamp+"Dockerfile\nkept\n0\n" {
		t.Errorf("inside: %q", out)
	}
}
