package enginetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
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

// images tries what an engine does about images. again makes another
// environment, as another process has it.
func images(t *testing.T, again func() *engine.Environment, spec environment.Spec) {
	t.Helper()
	stamp := fmt.Sprint(time.Now().UnixNano()) // a content that was never built
	last, made := again(), ""
	t.Cleanup(func() { // when the others are closed
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
		defer cancel()
		if dropped, err := last.Drop(ctx, made); made != "" && (!dropped || err != nil) {
			t.Errorf("drop %s at the end: %v, %v", made, dropped, err)
		}
	})
	t.Run("a Dockerfile is built once however many ask", func(t *testing.T) {
		made = builtOnce(t, again, spec, stamp)
	})
	t.Run("a Dockerfile that fails is its author's fault, and says why", func(t *testing.T) {
		var log lines
		dir := folder(t, map[string]string{"Dockerfile": "FROM " + Base + "\nRUN echo " + stamp + " says no; exit 3\n"})
		_, err := again().Prepare(bounded(t), environment.Image{Build: dir}, spec.Config, log.add)
		if !errors.Is(err, environment.ErrBuildFailed) || log.count(stamp+" says no") == 0 {
			t.Errorf("got %v, log %q", err, log.all)
		}
	})
	t.Run("what only BuildKit reads is built", func(t *testing.T) { builtByBuildKit(t, again, last, spec, stamp) })
	t.Run("the commands of a build may have no network", func(t *testing.T) { builtAlone(t, again(), spec, stamp) })
	t.Run("an image that was built is kept until it is dropped, and never while it is used", func(t *testing.T) { kept(t, again, spec, stamp) })
	for _, kind := range []string{"docker", "oci"} {
		t.Run("an archive of kind "+kind+" is loaded, or refused by what the engine can read", func(t *testing.T) { loaded(t, again(), spec, kind) })
	}
	t.Run("an image that does not exist is not tried again", func(t *testing.T) {
		for _, ref := range []string{"localhost/berth-test/none:1", "Not a Reference", "oci-archive:/no/such.tar"} {
			_, err := again().Prepare(bounded(t), environment.Image{Ref: ref}, spec.Config, nil)
			if !errors.Is(err, environment.ErrBadImage) && !errors.Is(err, environment.ErrRefused) {
				t.Errorf("%s: got %v", ref, err)
			}
		}
	})
}

func builtByBuildKit(t *testing.T, again func() *engine.Environment, last *engine.Environment, spec environment.Spec, stamp string) {
	var log lines
	e := again()
	dir := folder(t, map[string]string{
		"Dockerfile": "FROM " + Base + "\nRUN --mount=type=cache,target=/c echo " + stamp + " > /mark && cat /mark\nCOPY --chmod=755 run /run.sh\n", "run": "echo ran\n",
	})
	im, err := e.Prepare(bounded(t), environment.Image{Build: dir}, spec.Config, log.add)
	if err != nil || log.count(stamp) < 2 { // the step, and what it printed
		t.Fatalf("got %v, log %q", err, log.all)
	}
	t.Cleanup(func() { _, _ = last.Drop(context.WithoutCancel(t.Context()), im.Ref) })
	with := spec
	with.Image = im
	if out := Open(t, e, with).Sh(t, "cat /mark; stat -c %a /run.sh"); out != stamp+"\n755\n" {
		t.Errorf("inside: %q", out)
	}
}

func builtAlone(t *testing.T, e *engine.Environment, spec environment.Spec, stamp string) {
	for _, run := range []string{"RUN", "RUN --mount=type=cache,target=/c"} {
		for _, network := range []string{"default", "none"} {
			var log lines
			config := strings.TrimSuffix(string(spec.Config), "}") + `, "build_network": "` + network + `"}`
			text := "FROM " + Base + "\n" + run + " echo " + network + "-" + stamp + "; n=$(tail -n +3 /proc/net/dev | wc -l); echo has $n links; exit 3\n"
			_, err := e.Prepare(bounded(t), environment.Image{Build: folder(t, map[string]string{"Dockerfile": text})}, []byte(config), log.add)
			if !errors.Is(err, environment.ErrBuildFailed) || (log.count("has 1 links") > 0) != (network == "none") {
				t.Errorf("%s with %s: got %v, log %q", run, network, err, log.all)
			}
		}
	}
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

// builtOnce returns what gc calls the image that it built.
func builtOnce(t *testing.T, again func() *engine.Environment, spec environment.Spec, stamp string) (ref string) {
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
		if !reflect.DeepEqual(im, got[0]) || im.Digest == "" {
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
	all, err := e.Kept(bounded(t))
	if err != nil {
		t.Error(err)
	}
	for _, k := range all {
		if strings.HasPrefix(k.Ref, got[0].Ref) {
			ref = k.Ref
		}
	}
	return ref
}

// kept builds an image in one process, and tries to drop it in another: while
// the first process lives, while a sandbox is of it, and after both.
func kept(t *testing.T, again func() *engine.Environment, spec environment.Spec, stamp string) {
	dir := folder(t, map[string]string{"Dockerfile": "FROM " + Base + "\nENV KEPT=" + stamp + "\n"})
	maker, other := again(), again()
	im, wrong := maker.Prepare(bounded(t), environment.Image{Build: dir}, spec.Config, nil)
	must(t, wrong)
	at, _, _ := strings.Cut(strings.TrimPrefix(string(spec.Config), `{"socket": "`), `"`)
	find := func() (found environment.KeptImage) {
		t.Helper()
		all, err := other.Kept(bounded(t))
		must(t, err)
		for _, k := range all {
			if name, _, _ := strings.Cut(k.Ref, "@"); name == im.Ref {
				found = k
			}
			if !strings.HasPrefix(k.Ref, "localhost/berth/") || strings.Contains(k.Ref, Base) {
				t.Errorf("lists what is not ours: %+v", k)
			}
		}
		return found
	}
	drop := func(ref string, want bool) {
		t.Helper()
		if got, err := other.Drop(bounded(t), ref); err != nil || got != want {
			t.Errorf("drop of %s: %v, %v; want %v", ref, got, err, want)
		}
	}
	k := find()
	if !k.InUse || k.Used.IsZero() || time.Since(k.Used) > time.Hour { // it has the time of now, not none
		t.Errorf("in the process that prepared it it is %+v (of %s, engine at %s)", k, im.Ref, at)
	}
	drop(k.Ref, false)
	maker.Close()
	if k = find(); k.InUse {
		t.Errorf("when that process is gone it is %+v", k)
	}
	box := again()
	spec.Image = im
	b := Open(t, box, spec)
	box.Close() // the container alone
	if k = find(); !k.InUse {
		t.Errorf("under a sandbox it is %+v", k)
	}
	drop(k.Ref, false)
	if out := b.Sh(t, "echo on"); out != "on\n" {
		t.Errorf("its sandbox says %q", out)
	}
	_, err := other.Destroy(bounded(t), b.ID)
	must(t, err)
	drop(strings.Replace(k.Ref, im.Ref, Base, 1), false)
	drop(k.Ref, true)
	drop(k.Ref, false)
	if left := find(); left.Ref != "" {
		t.Errorf("it is still there: %+v", left)
	}
	if _, err := other.Prepare(bounded(t), environment.Image{Ref: Base}, spec.Config, nil); err != nil {
		t.Errorf("what it was built on: %v", err)
	}
	if made, err := maker.Prepare(bounded(t), environment.Image{Build: dir}, spec.Config, nil); err != nil || made.Digest == "" {
		t.Errorf("built again: %+v, %v", made, err)
	}
	maker.Close()
	drop(k.Ref, true)
}
