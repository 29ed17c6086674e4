package store

import (
	"path/filepath"

	"github.com/berth-eval/berth/core/store/node"
)

// OpenWithoutLock is Open without its protection, to show the damage that it
// prevents: it locks the folder elsewhere, and does not check for other
// writers.
func OpenWithoutLock(dir, elsewhere string) (*Run, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	r := &Run{Dir: dir, Manifest: m, berth: "test"}
	if r.lock, err = node.Acquire(elsewhere); err != nil {
		return nil, err
	}
	if r.journal, err = createJournal(filepath.Join(dir, JournalDir, "without-lock.jsonl")); err != nil {
		return nil, err
	}
	if err = r.journal.append(Entry{Kind: WriterBegan, Berth: r.berth}, true); err != nil {
		return nil, err
	}
	r.index, err = readIndex(dir, m)
	return r, err
}
