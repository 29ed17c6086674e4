package local

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/berth-eval/berth/environments/local/internal/base"
	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/image"
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

// One folder may have several Dockerfiles, whose images are not the same.
func TestEachDockerfileOfAFolderIsPacked(t *testing.T) {
	is := newImages(func() (string, error) { return t.TempDir(), nil })
	defer func() { _ = is.close() }()
	ref := dockerfile(t, "FROM a\nWORKDIR /one\n")
	if err := os.WriteFile(filepath.Join(ref.Build, "other"), []byte("FROM a\nWORKDIR /two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ref.Digest = "sha256:1" // of the folder
	for file, want := range map[string]string{"": "/one", "other": "/two"} {
		ref.File = file
		im, err := image.Read(ref)
		if err != nil {
			t.Fatal(err)
		}
		p, err := is.files(im)
		if err != nil {
			t.Fatal(err)
		}
		has, err := tar.NewReader(io.NewSectionReader(p.file(), 0, 1<<20)).Next()
		if err != nil || has.Name != want {
			t.Errorf("%q: got %v, %v, want %s", file, has, err, want)
		}
		p.release()
	}
}

// Equal content is packed once, however many ask; another content is not it.
func TestImagesArePackedOnceAndKeptWithinBounds(t *testing.T) {
	is := newImages(func() (string, error) { return t.TempDir(), nil })
	defer func() { _ = is.close() }()
	im := func(i int) *image.Image {
		ref := dockerfile(t, fmt.Sprintf("FROM a\nWORKDIR /w%d\n", i))
		ref.Digest = fmt.Sprint("sha256:", i)
		read, err := image.Read(ref)
		if err != nil {
			t.Fatal(err)
		}
		return read
	}
	read := im(0)
	var work sync.WaitGroup
	var mu sync.Mutex
	seen := map[*os.File]bool{}
	for range 8 {
		work.Go(func() {
			p, err := is.files(read)
			if err != nil {
				t.Error(err)
				return
			}
			defer p.release()
			mu.Lock()
			defer mu.Unlock()
			seen[p.file()] = true
		})
	}
	work.Wait()
	if len(seen) != 1 {
		t.Errorf("packed %d times", len(seen))
	}
	held, err := is.files(read)
	if err != nil {
		t.Fatal(err)
	}
	for i := range keptImages + 10 {
		p, err := is.files(im(i + 1))
		if err != nil {
			t.Fatal(err)
		}
		p.release()
	}
	if len(is.packed) > keptImages {
		t.Errorf("%d images are kept, %d are the most", len(is.packed), keptImages)
	}
	if _, err := held.file().Stat(); err != nil {
		t.Errorf("one in use was closed: %v", err)
	}
	held.release()
}
