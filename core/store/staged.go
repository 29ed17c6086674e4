package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// ErrSettled means that an attempt has a result of another writer. Of two
// writers, the first one counts.
var ErrSettled = errors.New("the attempt has a result of another writer")

// Staged is an attempt that is written on a disk of this machine, and copied to
// the folder of the run when it ends. Until then it touches nothing there.
type Staged struct {
	*Attempt

	to, worker string
}

// Stage makes dir, a new folder on a disk of this machine, for an attempt whose
// folder in the run is to. worker names this process, and is unique in the run.
func Stage(dir, to, worker string, number int) (*Staged, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("stage attempt: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("stage attempt: %w", err)
	}
	return &Staged{Attempt: &Attempt{dir: dir, number: number, files: map[string]*appended{}}, to: to, worker: worker}, nil
}

// Publish ends the attempt: it writes the result beside the other files, and
// copies all of them as Copy does.
func (s *Staged) Publish(r record.Result) error {
	b, err := s.end(&r)
	if err == nil {
		err = s.WriteFile(record.ResultFile, b)
	}
	if err != nil {
		return fmt.Errorf("publish attempt: %w", err)
	}
	return s.Copy()
}

// Copy copies the files of a published attempt to the run. Every file is on the
// shared disk when Copy returns, and the result has its name last. Fails with
// ErrSettled if another writer has given the attempt a result, and then leaves
// nothing of this attempt there. After any other error the caller may try again.
//
// All files are first copied into one folder beside their names. A process that
// is killed meanwhile leaves that folder, which is not part of the record.
func (s *Staged) Copy() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("publish attempt: copy to %s: %w", s.to, err)
		}
	}()
	mine, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	there, err := s.listed()
	if there[record.ResultFile] && err == nil {
		return nil // an earlier call failed after that
	}
	part := "." + s.worker + ".part"
	for _, e := range append(mine, nil) {
		name := part
		if e != nil {
			name = e.Name()
		}
		if there[name] && name != record.ResultFile { // of an earlier call that failed: only this process gives files these names
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.to, name)))
		}
	}
	if err != nil {
		return err
	}
	part = filepath.Join(s.to, part)
	if err = s.copyTo(part); err == nil {
		_, err = s.listed()
	}
	var names []string
	for _, e := range mine {
		if e.Name() != record.ResultFile && e.Name() != ChecksumsFile {
			names = append(names, e.Name())
		}
	}
	names = append(names, ChecksumsFile)
	for _, name := range names {
		if err == nil { // the names are free; os.Rename would look them up
			err = unix.Rename(filepath.Join(part, name), filepath.Join(s.to, name))
		}
	}
	if err == nil {
		err = first(filepath.Join(part, record.ResultFile), filepath.Join(s.to, record.ResultFile))
	}
	switch {
	case errors.Is(err, ErrSettled):
		for _, name := range append(names, filepath.Base(part)) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.to, name)))
		}
	case err != nil:
		_ = os.RemoveAll(part) // it is not part of the record
	default:
		_, _ = unix.Unlink(filepath.Join(part, record.ResultFile)), unix.Rmdir(part) // the same
	}
	return err
}

// listed returns the names in the folder of the attempt in the run. Fails with
// ErrSettled if it has the result of another writer. It lists the folder: a name
// that is looked up before another machine makes it may stay unknown here for a long
// time.
func (s *Staged) listed() (map[string]bool, error) {
	entries, err := os.ReadDir(s.to)
	there := map[string]bool{}
	for _, e := range entries {
		there[e.Name()] = true
	}
	if there[record.ResultFile] && !same(filepath.Join(s.dir, record.ResultFile), filepath.Join(s.to, record.ResultFile)) {
		return there, ErrSettled
	}
	return there, err
}

// Sum returns the checksum of the result as it is in the run.
func (s *Staged) Sum() (string, error) { return SumOf(filepath.Join(s.dir, record.ResultFile)) }

// Remove forgets the files on this machine.
func (s *Staged) Remove() error {
	return errors.Join(s.Abandon(), os.RemoveAll(s.dir))
}

// copyTo copies everything in the folder of the attempt to part, and waits for the
// disk after each file.
func (s *Staged) copyTo(part string) error {
	return filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(s.dir, path)
		if err != nil {
			return err
		}
		to := filepath.Join(part, name)
		switch {
		case d.IsDir():
			return os.Mkdir(to, 0o755)
		case d.Type() == fs.ModeSymlink:
			target, broken := os.Readlink(path)
			if broken != nil {
				return broken
			}
			return os.Symlink(target, to)
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is not a file that can be copied", path)
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		fi, err := in.Stat()
		if err != nil {
			return err
		}
		return writeSynced(to, in, fi.Mode().Perm()|0o444)
	})
}

// writeSynced writes a new file, and waits until it is on the disk.
func writeSynced(name string, from io.Reader, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// first gives a file, which is on the disk, a second name that no other
// process has given it. Fails with ErrSettled if another was first. The answer to a link may
// get lost on the way to a file server, which then reports our own name as
// taken: what is there decides, and not the answer.
func first(file, name string) error {
	err := os.Link(file, name)
	if same(file, name) {
		return nil
	}
	if err == nil || errors.Is(err, fs.ErrExist) {
		return ErrSettled
	}
	return err
}

// same reports whether two files have the same content.
func same(a, b string) bool {
	x, err := untrusted.Read(filepath.Dir(a), filepath.Base(a), maxResult)
	if err != nil {
		return false
	}
	y, err := untrusted.Read(filepath.Dir(b), filepath.Base(b), maxResult)
	return err == nil && bytes.Equal(x, y)
}

// Adopt is Begin for an attempt that an earlier process of the run began, and that
// a worker may be making.
func (r *Run) Adopt(trial string, number int) (*Attempt, error) {
	t := r.index.byID[trial]
	if t == nil || number < 1 || number > maxAttempts {
		return nil, fmt.Errorf("adopt attempt: the run has no attempt %d of trial %q", number, trial)
	}
	return r.began(trial, number, filepath.Join(r.Dir, TrialsDir, filepath.FromSlash(t.Dir), AttemptDir(number)))
}

// Settle gives the attempt a result unless a worker has given it one: then it
// fails with ErrSettled. The caller calls Took for the result that counts.
func (a *Attempt) Settle(r *record.Result) error {
	b, err := resultBytes(r)
	if err != nil {
		return err
	}
	part := filepath.Join(a.dir, ".settled.part")
	if err = os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) { // of an earlier call that failed
		return fmt.Errorf("settle attempt: %w", err)
	}
	defer os.Remove(part) //nolint:errcheck // it is not part of the record
	if err = writeSynced(part, bytes.NewReader(b), 0o644); err == nil {
		err = first(part, filepath.Join(a.dir, record.ResultFile))
	}
	if err != nil {
		return fmt.Errorf("settle attempt: %w", err)
	}
	return nil
}

// Took records the result that an attempt has. queued is how long the attempt
// waited for a worker.
func (a *Attempt) Took(r *record.Result, queued time.Duration) error {
	brief := BriefOf(r)
	brief.Queued = queued
	a.run.mu.Lock()
	a.run.index.byID[a.trial].ended(a.number, brief)
	a.run.mu.Unlock()
	return a.run.journal.append(Entry{
		Kind: AttemptEnded, Trial: a.trial, Attempt: a.number, Brief: brief, Sums: sums(a.dir, record.ResultFile, ChecksumsFile),
	}, true)
}

func resultBytes(r *record.Result) ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	return append(b, '\n'), err
}

// View opens a run for reading, for a worker of another process: nothing can be
// begun or noted with it. Its index is what journals tell at this moment. It looks
// up no attempt, because a name that another machine is about to make must not be
// looked up before.
func View(dir string) (*Run, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	js, err := ReadJournals(dir)
	if err != nil {
		return nil, err
	}
	r := &Run{Dir: dir, Manifest: m, index: newIndex(m)}
	for i := range js {
		r.index.take(&js[i])
	}
	return r, nil
}
