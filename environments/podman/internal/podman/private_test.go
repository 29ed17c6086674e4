package podman

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gofrs/flock"

	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/environments/internal/engine/enginetest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// job is a job of a scheduler on this machine, with an environment of its own.
type job struct {
	e    *engine.Environment
	p    *private
	s    *servers
	lock *flock.Flock
}

// beginJob starts a job whose pilot lives.
func beginJob(t *testing.T, scratch, name string) *job {
	t.Helper()
	t.Setenv(runtimedir.ScratchEnv, scratch)
	t.Setenv(runtimedir.JobEnv, name)
	j := &job{lock: flock.New(filepath.Join(scratch, runtimedir.JobLock(name))), s: &servers{}}
	if ok, err := j.lock.TryLock(); err != nil || !ok {
		t.Fatalf("lock: %v", err)
	}
	j.s.private, _ = ofJob()
	j.p = j.s.private
	j.e = environmentOf(j.s)
	t.Cleanup(j.e.Close)
	t.Cleanup(func() { kill(t, j.s); _ = j.lock.Close() })
	if _, err := j.s.address(); err != nil {
		testlevel.Cannot(t, "podman does not work for this user: run scripts/engines-for-tests as root to have it tried", err)
	}
	return j
}

// processesOf lists the processes that know the session of a job.
func processesOf(t *testing.T, p *private) (all []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		env, _ := os.ReadFile(f)                                          //nolint:errcheck // it has ended, or is another user's
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline")) //nolint:errcheck // the same
		if text := string(env) + string(line); strings.Contains(text, p.short+"/") || strings.Contains(text, p.dir()) {
			all = append(all, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return all
}

// gone checks that nothing of a job is left.
func gone(t *testing.T, p *private) {
	t.Helper()
	for _, file := range []string{p.dir(), p.short, p.socket()} {
		if _, err := os.Lstat(file); err == nil {
			t.Errorf("left of job %s: %s", p.job, file)
		}
	}
	if left := processesOf(t, p); len(left) > 0 {
		t.Errorf("processes of job %s are left: %q", p.job, left)
	}
}

// sweepTogether removes what jobs left, as pilots do that end at the same time.
func sweepTogether(ctx context.Context, t *testing.T, scratch string) {
	t.Helper()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := sweep(ctx, []string{scratch}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// addTo copies an archive into the scratch folder, and opens a sandbox of the copy in a
// job whose environment has it as its base. The store of images has one already.
func addTo(t *testing.T, j *job, spec environment.Spec) *enginetest.Box {
	t.Helper()
	text, err := os.ReadFile(strings.TrimPrefix(spec.Image.Ref, "docker-archive:"))
	other := filepath.Join(j.p.scratch, "other.tar")
	if err = errors.Join(err, os.WriteFile(other, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	spec.Image.Ref, spec.Config = "", fmt.Appendf(nil, `{"base": "docker-archive:%s"}`, other)
	return enginetest.Open(t, j.e, spec)
}

// Two jobs of one user on one machine have storage of their own, also in a folder with
// a long path. The image of an archive is loaded once. When one job is killed, nothing
// of it is left, and the other goes on.
func TestJobsOnOneMachineDoNotDisturbEachOther(t *testing.T) {
	archive := enginetest.Archive(t, "docker")
	store(t)
	scratch := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), strings.Repeat("long-path-", 12))
	if err := os.Mkdir(scratch, 0o700); err != nil {
		t.Fatal(err)
	}
	var first, second *job
	t.Cleanup(func() { // when the sandboxes are removed and the servers are killed
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), enginetest.Patience)
		defer cancel()
		sweepTogether(ctx, t, scratch)
		for _, j := range []*job{first, second} {
			if j != nil {
				gone(t, j.p)
			}
		}
	})
	first = beginJob(t, scratch, "one")
	address, err := first.s.address()
	if err != nil {
		t.Fatal(err)
	}
	spec := enginetest.SpecOf(t, first.e, archive, strings.TrimPrefix(address, "unix://"))
	spec.Config = nil
	a := enginetest.Open(t, first.e, spec)
	images := filepath.Join(scratch, "podman", "images", "overlay", "overlay-images", "images.json")
	loaded, err := os.Stat(images)
	if err != nil {
		t.Fatal(err)
	}

	second = beginJob(t, scratch, "two")
	b := enginetest.Open(t, second.e, spec)
	if again, failed := os.Stat(images); failed != nil || !again.ModTime().Equal(loaded.ModTime()) || again.Size() != loaded.Size() {
		t.Errorf("the archive was loaded again: %v, %v", again, failed)
	}
	c := addTo(t, second, spec)
	for who, box := range map[string]*enginetest.Box{"one": a, "two": b, "two, of the other archive": c} {
		if got := box.Sh(t, "echo on"); got != "on\n" {
			t.Errorf("job %s says %q", who, got)
		}
	}
	list := func(j *job) []string {
		t.Helper()
		ids, failed := j.e.List(t.Context(), "")
		if failed != nil {
			t.Fatal(failed)
		}
		return ids
	}
	if x, y := list(first), list(second); len(x) != 1 || len(y) != 2 || slices.Contains(y, x[0]) {
		t.Errorf("job one has %q, job two %q", x, y)
	}

	// One job is killed: its processes are gone, its lock is free.
	kill(t, first.s)
	if err = first.lock.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv(runtimedir.JobEnv, runtimedir.NoJob)
	ctx, cancel := context.WithTimeout(t.Context(), enginetest.Patience)
	defer cancel()
	if ids, err := made(t).List(ctx, ""); err != nil || len(ids) > 0 {
		t.Errorf("the cleaner lists %q, %v", ids, err)
	}
	gone(t, first.p)
	if got := b.Sh(t, "echo on"); got != "on\n" {
		t.Errorf("after the end of the other job, job two says %q", got)
	}
	if len(processesOf(t, second.p)) == 0 {
		t.Error("no process of job two is seen: the test proves nothing")
	}
}
