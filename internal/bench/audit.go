package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// audit measures the audit of 10,000 trials. Each has the files of a real attempt: the
// one of the quickstart with the most files, whose agent asked a model.
func (b *bench) audit(ctx context.Context, f *figures) error {
	const trials = 10_000
	runs := filepath.Join(b.dir, "audited")
	if _, err := b.berth(ctx, "run", "examples/quickstart", "--runs", runs); err != nil {
		return err
	}
	var one string
	var result record.Result
	files := 0
	err := ended(runs, func(folder string, r *record.Result) error {
		sums, err := store.ChecksumsOf(folder)
		if len(sums.Files) > files {
			one, result, files = folder, *r, len(sums.Files)
		}
		return err
	})
	if err != nil {
		return err
	}
	dir, err := b.experiment("audit", "oracle", 100, trials/100, 4)
	if err != nil {
		return err
	}
	run, err := b.finished(ctx, dir, func(s *store.Run, run string, t store.Trial) error {
		a, failed := s.Begin(t.ID)
		if failed != nil {
			return failed
		}
		r := result
		r.Run, r.Trial, r.Task, r.TaskDigest, r.Repetition, r.Attempt, r.Cell = run, t.ID, t.Task, t.TaskDigest, t.Repetition, a.Number(), nil
		return errors.Join(copyAttempt(a.Dir(), one), a.Publish(r))
	})
	if err != nil {
		return err
	}
	if _, err = b.berth(ctx, "resume", run); err != nil { // writes the summary
		return err
	}
	u, err := b.berth(ctx, "audit", run)
	if err != nil {
		return err
	}
	f.add(fmt.Sprintf("audit of 10,000 trials with %d files each", files+2), took(u), busy(u), "", "≤ 30 s")
	return nil
}

// copyAttempt copies the files of an attempt, but those that publishing writes.
func copyAttempt(to, from string) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		name, outside := filepath.Rel(from, p)
		if err = errors.Join(err, outside); err != nil || name == record.ResultFile || name == store.ChecksumsFile {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), 0o750)
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), b, 0o600)
	})
}
