package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

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
// and others folders of their own. Fails if a trial of the run is not in m.
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
