// Package runtest has what the tests share that read run folders, or control a run
// while it runs.
//
// Only tests import it.
package runtest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/internal/testlevel"
)

// Main runs the tests of a package. The sockets of their runs have short paths,
// because the kernel allows about 100 bytes. left may return what the tests left
// behind, as an error.
func Main(m *testing.M, left func() error) {
	dir, err := os.MkdirTemp(testlevel.Tmp(), "brt")
	if err == nil {
		err = os.Setenv(node.EnvDir, dir)
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	if left != nil && code == 0 {
		if err = left(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	_ = os.RemoveAll(dir)
	os.Exit(code) //nolint:forbidigo // of the tests
}

// Fuzz replaces the content of one file below dir at a time, and calls check with
// the file, what was in it before, and what is in it now. The file is as before
// when check returns.
func Fuzz(f *testing.F, dir string, check func(t *testing.T, file string, before, now []byte)) {
	f.Helper()
	var files []string
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	}); err != nil {
		f.Fatal(err)
	}
	for i := range files {
		f.Add(i, []byte("{}\n"))
	}
	f.Fuzz(func(t *testing.T, which int, now []byte) {
		file := files[uint(which)%uint(len(files))]
		before, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, now, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := os.WriteFile(file, before, 0o600); err != nil {
				t.Error(err) // the next execution reads it
			}
		}()
		check(t, file, before, now)
	})
}

// Held makes attempts that are in the turn of their agent until they are released
// or cancelled, or their turn is ended.
type Held struct {
	Release chan struct{}       // each value ends one attempt, and closing it ends all
	Begin   func(run.Job) error // writes what the attempt has recorded; nil: nothing
}

// Attempt implements run.Executor.
func (h *Held) Attempt(ctx context.Context, j run.Job) (record.Result, error) {
	r := record.Result{Version: 1, Trial: j.Trial.ID, Attempt: j.Attempt.Number(), Outcome: record.Passed, Phases: []record.Phase{}, Start: time.Now(), End: time.Now()}
	if h.Begin != nil {
		if err := h.Begin(j); err != nil {
			return r, err
		}
	}
	j.Live(record.Event{Type: record.EventPhaseStart, Phase: record.PhaseTurn, Turn: 1})
	select {
	case <-h.Release:
	case why := <-j.Ends:
		r.AgentEnd, r.Reasons = record.EndedEarly, []string{why.Error()}
	case <-ctx.Done():
		r.Outcome = record.Cancelled
		r.Error = &record.Error{Message: context.Cause(ctx).Error()}
	}
	r.End = time.Now()
	return r, j.Attempt.Publish(r)
}
