// Package store is the run folder: the plan of a run, what happened in it, and
// every attempt, in files that survive a kill at any instant, a full disk and
// a shared file system.
//
//	<experiment>-<utc>/
//	  experiment/             files as given
//	  manifest.jsonl          the plan: a line for the run, each cell, each trial; never changed
//	  journal/<writer>.jsonl  one per writing process; appended, never changed
//	  summary.json            counts and tables, made again at the end of each writer
//	  trials/<task>--<cell>--<repetition>-<id8>/attempt-N/
//
// A line of a journal carries a checksum. The line that ends an attempt is on
// the disk before Publish returns. A crash may leave an incomplete last line;
// readers skip it, like any line that fails its checksum, and find an attempt
// whose line is missing by its result.json. Every index is rebuilt from these
// files. Attempts are never deleted or overwritten.
//
// A writer first records its identity in its journal, and records its end last.
// Another process sees it there, on any machine, and by a lock on the local
// disk of this machine.
//
// The package must not know plugins, must not decide what runs (core/run does),
// and must not compute statistics.
package store

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store/node"
)

// Run is a run folder that this process writes. It is safe for concurrent use.
type Run struct {
	Dir      string // absolute
	Manifest *Manifest

	berth   string
	lock    *node.Lock
	journal *journal

	mu    sync.Mutex
	index *Index
}

// File is a file of the experiment in its original form.
type File struct {
	// Name is slash-separated and relative to the folder of the experiment. A
	// file with an absolute name, or one that leads out of the folder, is kept
	// below outside/.
	Name  string
	Bytes []byte
}

// Create makes the folder of a new run below parent, named after the experiment
// and the time, and opens it for writing. It sets the run's id.
func Create(parent string, m *Manifest, files []File) (*Run, error) {
	parent, err := filepath.Abs(parent)
	if err != nil {
		return nil, err
	}
	if err = os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("create run: %w", err)
	}
	m.Header.Version = FormVersion
	if m.Header.Created.IsZero() {
		m.Header.Created = time.Now().UTC()
	}
	if m.Header.Run, err = newID(); err != nil {
		return nil, err
	}
	dir, err := newFolder(parent, Name(m.Header.Experiment, maxName)+"-"+m.Header.Created.Format("20060102T150405Z"))
	if err != nil {
		return nil, fmt.Errorf("create run: %w", err)
	}
	for _, sub := range []string{ExperimentDir, JournalDir, TrialsDir} {
		if err = os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("create run: %w", err)
		}
	}
	if err = m.keep(dir, files); err != nil {
		return nil, fmt.Errorf("create run: %w", err)
	}
	r := &Run{Dir: dir, Manifest: m, berth: m.Header.Berth, index: newIndex(m)}
	if err = r.begin(false); err != nil {
		return nil, err
	}
	// Last, because a folder without a manifest is not a run.
	if err = m.write(filepath.Join(dir, ManifestFile)); err != nil {
		return nil, errors.Join(fmt.Errorf("create run: manifest: %w", err), r.Close())
	}
	return r, nil
}

// keep stores the files of the experiment, and their digests in the header.
func (m *Manifest) keep(dir string, files []File) error {
	m.Header.Files = map[string]string{}
	for _, f := range files {
		m.Header.Files[keptName(f.Name)] = digestOf(f.Bytes)
		if err := keep(filepath.Join(dir, m.Header.Folder()), f); err != nil {
			return err
		}
	}
	return nil
}

// keep stores a file of the experiment in its original form.
func keep(dir string, f File) error {
	file := filepath.Join(dir, filepath.FromSlash(keptName(f.Name)))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return replace(file, f.Bytes)
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Open begins to write a run that exists; berth is the version of this
// program. Fails with ErrNoRun, with a *node.HeldError if another process on this
// machine writes the run, and with a *BusyError if a process on another machine has
// not ended. With takeOver the user says that such a process is gone; a process
// that is seen to live is still refused.
func Open(dir, berth string, takeOver bool) (*Run, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{JournalDir, TrialsDir} {
		if err = folder(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	r := &Run{Dir: dir, Manifest: m, berth: berth}
	if err = r.begin(takeOver); err != nil {
		return nil, err
	}
	if r.index, err = readIndex(dir, m); err == nil {
		err = r.recover()
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// begin takes the lock and starts the journal of this process.
func (r *Run) begin(takeOver bool) (err error) {
	if r.lock, err = node.Acquire(r.Dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.lock.Release())
		}
	}()
	if err = vacant(r.Dir, "", takeOver); err != nil {
		return err
	}
	self := node.Self()
	writer := fmt.Sprintf("%s-%s-%d", time.Now().UTC().Format("20060102T150405.000000Z"), Name(self.Host, 40), self.PID)
	if r.journal, err = createJournal(filepath.Join(r.Dir, JournalDir, writer+".jsonl")); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	err = r.journal.append(Entry{Kind: WriterBegan, Process: &self, Berth: r.berth, Sums: sums(r.Dir, ManifestFile)}, true)
	if err == nil {
		err = vacant(r.Dir, writer, takeOver) // a process on another machine may have opened the run at the same moment
	}
	if err != nil {
		err = errors.Join(err, r.end())
	}
	return err
}

// BusyError says that another writer did not record its end.
type BusyError struct {
	Dir     string
	Process node.Process
	Since   time.Time
	Alive   bool // known to live; otherwise it is on another machine
}

// Error names the other process and says what to do.
func (e *BusyError) Error() string {
	if e.Alive {
		return fmt.Sprintf("%s is in use by berth with %s since %s", e.Dir, e.Process, e.Since.Format(time.RFC3339))
	}
	return fmt.Sprintf("%s is in use by berth with %s since %s, and has not ended: if that process is gone, use --take-over",
		e.Dir, e.Process, e.Since.Format(time.RFC3339))
}

// vacant fails with a *BusyError when a writer other than self may be active.
// takeOver ignores writers whose state cannot be seen from this machine.
func vacant(dir, self string, takeOver bool) error {
	js, err := ReadJournals(dir)
	if err != nil {
		return err
	}
	for i := range js {
		j := &js[i]
		if j.Writer == self || len(j.Entries) == 0 || j.Entries[len(j.Entries)-1].Kind == WriterEnded {
			continue
		}
		began := &j.Entries[0]
		if began.Kind != WriterBegan || began.Process == nil { // such a writer cannot have begun anything
			continue
		}
		if s := began.Process.State(); s == node.Alive || s == node.Unknown && !takeOver {
			return &BusyError{Dir: dir, Process: *began.Process, Since: began.Time, Alive: s == node.Alive}
		}
	}
	return nil
}

// recover records what a killed writer could not: attempts that have a result
// but no journal entry for it.
func (r *Run) recover() error {
	for _, t := range r.index.Trials {
		for _, a := range t.Attempts {
			if !a.found {
				continue
			}
			dir := filepath.Join(r.Dir, TrialsDir, filepath.FromSlash(t.Dir), AttemptDir(a.Number))
			e := Entry{Kind: AttemptEnded, Trial: t.ID, Attempt: a.Number, Brief: a.Result, Sums: sums(dir, record.ResultFile, ChecksumsFile)}
			if err := r.journal.append(e, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// Note records something that a reader of the run should know.
func (r *Run) Note(text string) error { return r.note(Entry{Kind: Noted, Note: text}) }

// Accept records a drift that the user accepted.
func (r *Run) Accept(drift string) error {
	return r.note(Entry{Kind: Noted, Note: "drift accepted: " + drift, Accepted: drift})
}

// Intervene records what a person did to the run.
func (r *Run) Intervene(text string, i *Intervention) error {
	return r.note(Entry{Kind: Noted, Note: text, Intervention: i})
}

func (r *Run) note(e Entry) error {
	e.Time = time.Now().UTC()
	r.mu.Lock()
	r.index.Notes = append(r.index.Notes, e)
	r.mu.Unlock()
	return r.journal.append(e, true)
}

// Index returns a copy of the current state of every trial.
func (r *Run) Index() *Index {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.index.clone()
}

// WriteFile writes a file of the run under a temporary name and renames it.
// name is slash-separated and relative to the run folder.
func (r *Run) WriteFile(name string, data []byte) error {
	if !local(name) {
		return fmt.Errorf("write %q: not a path below the run folder", name)
	}
	return replace(filepath.Join(r.Dir, filepath.FromSlash(name)), data)
}

// Close records the end of this writer in the journal, and releases the lock.
// Attempts that it began and did not publish stay as they are.
func (r *Run) Close() error {
	return errors.Join(r.end(), r.lock.Release())
}

func (r *Run) end() error {
	if r.journal == nil {
		return nil
	}
	err := r.journal.append(Entry{Kind: WriterEnded, Sums: sums(r.Dir, ManifestFile, PluginsFile, SummaryFile)}, false)
	return errors.Join(err, r.journal.close())
}

// folder fails if name is not a folder, also if it is a link to one: files
// written into a run must stay in it.
func folder(name string) error {
	fi, err := os.Lstat(name)
	if err == nil && !fi.IsDir() {
		err = fmt.Errorf("%s is a link or not a folder, and Berth writes a run only below its own folder: put the folder itself there", name)
	}
	return err
}

// newFolder makes parent/name or, if it exists, parent/name-2 and so on.
func newFolder(parent, name string) (string, error) {
	for n := 1; ; n++ {
		dir := filepath.Join(parent, name)
		if n > 1 {
			dir = fmt.Sprintf("%s-%d", dir, n)
		}
		err := os.Mkdir(dir, 0o755)
		if err == nil || !errors.Is(err, fs.ErrExist) || n == 1000 {
			return dir, err
		}
	}
}

// newID returns 16 random bytes in hex.
func newID() (string, error) {
	var b [16]byte
	_, err := rand.Read(b[:])
	return hex.EncodeToString(b[:]), err
}

// replace writes a file under a temporary name, waits until it is on the disk,
// and renames it. It names the folder of the temporary file, because otherwise
// renameio tests first whether another folder would do, which takes as long as
// everything else.
func replace(name string, data []byte) error {
	return renameio.WriteFile(name, data, 0o644, renameio.WithTempDir(filepath.Dir(name)))
}

// Extend gives the run a larger plan, m, which must have every trial of the
// present one. Trials keep their folders and attempts. The files of the
// experiment are stored beside the earlier ones. A process that is killed
// meanwhile leaves the run as it was, and a reader sees the plan before or after.
// Nothing may run.
func (r *Run) Extend(m *Manifest, files []File) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.Manifest.Header
	h := &m.Header
	h.Version, h.Run, h.Experiment, h.Created, h.Berth = before.Version, before.Run, before.Experiment, before.Created, before.Berth
	h.Extended = before.Extended + 1
	if err := r.sameFolders(m); err != nil {
		return fmt.Errorf("extend run: %w", err)
	}
	folder := filepath.Join(r.Dir, h.Folder())
	// A process that was killed before it wrote its manifest may have left it.
	err := os.RemoveAll(folder)
	if err == nil {
		err = os.Mkdir(folder, 0o755)
	}
	if err == nil {
		err = m.keep(r.Dir, files)
	}
	if err == nil {
		err = m.write(filepath.Join(r.Dir, ManifestFile))
	}
	if err == nil {
		err = r.journal.append(Entry{Kind: Extended, Sums: sums(r.Dir, ManifestFile)}, true)
	}
	if err != nil {
		return fmt.Errorf("extend run: %w", err)
	}
	index := newIndex(m)
	for _, t := range r.index.Trials {
		index.byID[t.ID].Attempts = t.Attempts
	}
	index.Torn, index.Damaged, index.Writers, index.Notes = r.index.Torn, r.index.Damaged, r.index.Writers, r.index.Notes
	r.Manifest, r.index = m, index
	return nil
}

// sameFolders gives the trials of m that the run has the folders that they have,
// and others their own folders. Fails if a trial of the run is not in m.
func (r *Run) sameFolders(m *Manifest) error {
	taken := make(map[string]bool, len(m.Trials))
	found := 0
	for _, t := range r.index.Trials {
		taken[t.Dir] = true
	}
	for i := range m.Trials {
		t := &m.Trials[i]
		if had := r.index.byID[t.ID]; had != nil {
			t.Dir = had.Dir
			found++
			continue
		}
		for n := 9; taken[t.Dir] && n <= len(t.ID); n++ {
			t.Dir = TrialDir(t.Task, m.Cells[t.Cell].Slug, t.Repetition, t.ID[:8]) + t.ID[8:n]
		}
		if _, err := os.Lstat(filepath.Join(r.Dir, TrialsDir, t.Dir)); taken[t.Dir] || !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("there is a folder %s of another trial already", filepath.Join(TrialsDir, t.Dir))
		}
		taken[t.Dir] = true
	}
	if found != len(r.index.Trials) {
		return fmt.Errorf("the plan has %d of the %d trials of the run", found, len(r.index.Trials))
	}
	return nil
}
