package engine

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// builder is an engine whose builds never end by themselves.
type builder struct{ Engine }

func (builder) Inspect(context.Context, string) (Image, error) { return Image{}, ErrAbsent }
func (builder) Build(ctx context.Context, _ Build, _ func(string)) error {
	<-ctx.Done()
	return ctx.Err()
}

// A build that ends with its caller says nothing of the Dockerfile: the next trial
// tries again. One that takes longer than it may does.
func TestABuildThatItsCallerEndsIsNotAFailedOne(t *testing.T) {
	t.Setenv(runtimedir.Env, shortFolder(t))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &remote{Engine: builder{}, name: "builder", known: map[string]Image{}, done: map[string]error{}}
	for name, c := range map[string]struct {
		caller, limit time.Duration
		failed        bool
	}{
		"the caller's time":  {caller: 20 * time.Millisecond, limit: time.Hour},
		"the time of builds": {caller: time.Hour, limit: 20 * time.Millisecond, failed: true},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), c.caller)
		_, err := build(ctx, &judgement{remote: r}, environment.Image{Build: dir, Timeout: c.limit}, name, func(string) {})
		cancel()
		if _, got := r.tried(name); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, environment.ErrBuildFailed) != c.failed || (got != nil) != c.failed {
			t.Errorf("%s: got error %v, remembered %v", name, err, got)
		}
	}
}

// A message may have the words of both: a registry that is busy is asked again.
func TestABusyRegistryIsNoMissingImage(t *testing.T) {
	said := errors.New("manifest for a:1 not found: toomanyrequests: You have reached your pull rate limit")
	for range 20 {
		if err := PullError(said); !errors.Is(err, ErrBusy) || errors.Is(err, ErrNoImage) {
			t.Fatalf("got %v", err)
		}
	}
}

// A build sees the files that are not in its folder, and none that it must not see.
func TestContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "tests/test.sh", "steps/one/tests/test.sh", "testsuite"} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("old"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	im := environment.Image{Build: dir, Exclude: []string{"tests", "steps/one/tests"}, Files: map[string][]byte{"a": []byte("new"), "d/b": []byte("#!/bin/sh")}}
	r := contextOf(im)
	defer r.Close()
	got := map[string]string{}
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			got[h.Name] = string(b)
		}
	}
	if want := map[string]string{"a": "new", "d/b": "#!/bin/sh", "testsuite": "old"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
