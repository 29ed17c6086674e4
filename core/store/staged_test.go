package store_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/testlevel"
)

// staged makes an attempt with some files on this machine, for a folder of a run.
func staged(t *testing.T, to, worker string) *store.Staged {
	t.Helper()
	s, err := store.Stage(filepath.Join(t.TempDir(), "staged"), to, worker, 1)
	testlevel.Must(t, err)
	for range 3 {
		testlevel.Must(t, s.Append(record.StepsFile, worker))
	}
	err = errors.Join(os.MkdirAll(filepath.Join(s.Dir(), "artifacts", "deep"), 0o700), os.WriteFile(filepath.Join(s.Dir(), "artifacts", "deep", "a"), []byte("made"), 0o600),
		os.Symlink("a", filepath.Join(s.Dir(), "artifacts", "deep", "link")), os.Mkdir(filepath.Join(s.Dir(), "empty"), 0o700))
	testlevel.Must(t, err)
	return s
}

// files returns everything below a folder, with the content of files.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path) //nolint:errcheck // it is below
		switch {
		case err != nil:
			return err
		case d.IsDir():
			all[name+"/"] = ""
		case d.Type() == fs.ModeSymlink:
			all[name], err = os.Readlink(path)
		default:
			var b []byte
			b, err = os.ReadFile(path)
			all[name] = string(b)
		}
		return err
	})
	testlevel.Must(t, err)
	return all
}

func TestAStagedAttemptIsCopiedWhenItEnds(t *testing.T) {
	t.Parallel()
	to := t.TempDir()
	s := staged(t, to, "w")
	if there := files(t, to); len(there) != 1 {
		t.Fatalf("before the end: %v", there)
	}
	want := files(t, s.Dir())
	testlevel.Must(t, s.Publish(record.Result{Version: 1, Outcome: record.Passed}))
	got := files(t, to)
	for name, content := range want {
		if c, ok := got[name]; !ok || c != content {
			t.Errorf("%s is %q, want %q", name, c, content)
		}
	}
	var list store.Checksums
	testlevel.Must(t, json.Unmarshal([]byte(got[store.ChecksumsFile]), &list))
	if list.Files["artifacts/deep/a"] != fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("made"))) || len(list.Files) != 3 {
		t.Errorf("checksums: %v", list.Files)
	}
	sum, err := s.Sum()
	if err != nil || sum != fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(got[record.ResultFile]))) {
		t.Errorf("the result has %s, %v", sum, err)
	}
	delete(got, store.ChecksumsFile)
	delete(got, record.ResultFile)
	if len(got) != len(want) {
		t.Errorf("the run has %v", got)
	}
	if err = s.Copy(); err != nil { // again, after an answer that got lost
		t.Errorf("again: %v", err)
	}
	if err = s.Remove(); err != nil {
		t.Error(err)
	}
	if _, err = os.Lstat(s.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the files on this machine are still there: %v", err)
	}
}

// A worker and the process that counted it as lost end the same attempt at the same
// moment: one of them wins, and if that is not the worker, nothing of it is left.
func TestOfTwoWritersOfAResultOneWins(t *testing.T) {
	t.Parallel()
	r, err := store.Create(t.TempDir(), manifest(1), nil)
	testlevel.Must(t, err)
	defer r.Close()
	for range 60 {
		a, err := r.Begin(r.Manifest.Trials[0].ID)
		testlevel.Must(t, err)
		s := staged(t, a.Dir(), "w")
		var worker, other error
		var both sync.WaitGroup
		begin := make(chan struct{})
		both.Go(func() {
			<-begin
			worker = s.Publish(record.Result{Version: 1, Outcome: record.Passed})
		})
		both.Go(func() {
			<-begin
			other = a.Settle(&record.Result{Version: 1, Outcome: record.Preempted})
		})
		close(begin)
		both.Wait()
		want := record.Passed
		if worker != nil {
			want = record.Preempted
		}
		got, err := store.ReadResult(a.Dir())
		if (worker == nil) == (other == nil) || err != nil || got.Outcome != want {
			t.Fatalf("worker: %v, other: %v; result %+v, %v", worker, other, got, err)
		}
		if lost := errors.Join(worker, other); !errors.Is(lost, store.ErrSettled) {
			t.Errorf("the loser: %v", lost)
		}
		if left := len(files(t, a.Dir())); (worker == nil) != (left > 2) {
			t.Errorf("worker: %v, and the folder has %v", worker, files(t, a.Dir()))
		}
		if err = a.Abandon(); err != nil {
			t.Error(err)
		}
	}
}

// A worker whose copy failed half-way, and that then counts as lost, takes back what
// it had copied.
func TestALateCopyLeavesNothingOfAnEarlierOne(t *testing.T) {
	t.Parallel()
	r, err := store.Create(t.TempDir(), manifest(1), nil)
	testlevel.Must(t, err)
	defer r.Close()
	a, err := r.Begin(r.Manifest.Trials[0].ID)
	testlevel.Must(t, err)
	s := staged(t, a.Dir(), "w")
	half := filepath.Join(a.Dir(), ".w.part")
	testlevel.Must(t, errors.Join(os.Mkdir(half, 0o755), os.WriteFile(filepath.Join(half, "artifacts"), nil, 0o600), os.WriteFile(filepath.Join(a.Dir(), record.StepsFile), []byte("{}\n"), 0o600)))
	testlevel.Must(t, a.Settle(&record.Result{Version: 1, Outcome: record.Preempted}))
	if err = s.Publish(record.Result{Version: 1, Outcome: record.Passed}); !errors.Is(err, store.ErrSettled) {
		t.Errorf("publish: %v", err)
	}
	if left := files(t, a.Dir()); len(left) != 2 || left[record.ResultFile] == "" {
		t.Errorf("the folder has %v, want the result alone", left)
	}
}

func TestARunSettlesWhatAWorkerDoesNot(t *testing.T) {
	t.Parallel()
	for _, workerFirst := range []bool{false, true} {
		r, err := store.Create(t.TempDir(), manifest(1), nil)
		testlevel.Must(t, err)
		a, err := r.Begin(r.Manifest.Trials[0].ID)
		testlevel.Must(t, err)
		s := staged(t, a.Dir(), "w")
		lost := record.Result{Version: 1, Trial: r.Manifest.Trials[0].ID, Outcome: record.Preempted}
		made := record.Result{Version: 1, Trial: r.Manifest.Trials[0].ID, Outcome: record.Passed}
		var first, second error
		counts := made
		if workerFirst {
			first, second = s.Publish(made), a.Settle(&lost)
		} else {
			counts = lost
			first, second = a.Settle(&lost), s.Publish(made)
		}
		if first != nil || !errors.Is(second, store.ErrSettled) {
			t.Errorf("worker first %v: %v, then %v", workerFirst, first, second)
		}
		names := slices.Sorted(maps.Keys(files(t, a.Dir())))
		if !workerFirst && !slices.Equal(names, []string{"./", record.ResultFile}) {
			t.Errorf("left of the worker: %q", names)
		}
		testlevel.Must(t, errors.Join(a.Took(&counts, 5), a.Abandon(), r.Close()))
		_, x, err := store.Read(r.Dir)
		if err != nil || x.Trials[0].Outcome() != counts.Outcome || x.Trials[0].Attempts[0].Result.Queued != 5 {
			t.Errorf("worker first %v: %v, %v", workerFirst, x.Trials[0].Outcome(), err)
		}
	}
}
