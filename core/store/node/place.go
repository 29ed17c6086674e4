package node

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/berth-eval/berth/plugins/runtimedir"
)

// Owner says who owns a place. It is stored there in owner.json.
type Owner struct {
	// Label marks everything that plugins make for the process: see
	// environment.Labels. It belongs to the run, so that a process that resumes
	// a run has the same label.
	Label   string    `json:"label"`
	Run     string    `json:"run,omitempty"` // the run folder, absolute; empty: none
	Process Process   `json:"process"`
	Since   time.Time `json:"since"`
	// Environments are the plugins that may have made sandboxes under Label.
	Environments []string `json:"environments,omitempty"`
	// Disk is another folder, on a disk, for files that are too large for a
	// place in memory; empty when the place is not in memory. It is created
	// when it is first needed.
	Disk string `json:"disk,omitempty"`
}

// Place is the folder of one running process. It is locked while the process
// lives; the kernel releases the lock however the process ends.
type Place struct {
	Owner
	Dir     string
	lock    *flock.Flock
	scratch *flock.Flock // of the folder in a scratch folder; nil: there is none
}

const (
	ownerFile  = "owner.json"
	placesDir  = "p"
	lockSuffix = ".lock"
	locksDir   = "l"
)

// Claim makes a place for this process. label marks everything that the process
// makes, run is the folder of its run, and environments are the plugins that it
// is going to use. scratch is a folder of this user on a local disk in which the place
// has its other folder; empty: see Owner.Disk. The other folder is locked there,
// because a runtime folder in memory is lost when the machine stops.
func Claim(label, run string, environments []string, scratch string) (*Place, error) {
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	parent := filepath.Join(dir, placesDir)
	if err = os.MkdirAll(parent, 0o700); err != nil {
		return nil, fmt.Errorf("runtime folder: %w", err)
	}
	p := &Place{Owner: Owner{Label: label, Run: run, Process: Self(), Since: time.Now().UTC(), Environments: environments}}
	if p.Dir, p.lock, err = newLocked(parent); err != nil {
		return nil, fmt.Errorf("runtime folder: %w", err)
	}
	if big := cmp.Or(scratch, disk(dir)); big != "" {
		p.Disk = filepath.Join(big, filepath.Base(p.Dir))
	}
	if scratch != "" {
		if p.scratch, err = try(lockOf(p.Disk)); err != nil || p.scratch == nil {
			return nil, errors.Join(fmt.Errorf("scratch folder: %s cannot be locked", lockOf(p.Disk)), err, p.Release())
		}
	}
	if err = os.Mkdir(p.Dir, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("runtime folder: %w", err), p.Release())
	}
	b, err := json.Marshal(p.Owner)
	if err == nil {
		err = os.WriteFile(filepath.Join(p.Dir, ownerFile), append(b, '\n'), 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("runtime folder: %w", err), p.Release())
	}
	return p, nil
}

// newLocked locks the path of a new folder in parent. The folder is made after that:
// one without a held lock is stale.
func newLocked(parent string) (dir string, lock *flock.Flock, err error) {
	for tries := 0; ; tries++ { // a cleaner may hold a lock that it believes to be stale
		dir = filepath.Join(parent, strings.ToLower(rand.Text()[:8]))
		if lock, err = try(lockOf(dir)); lock != nil {
			return dir, lock, nil
		}
		if err != nil || tries == sweepTries {
			return "", nil, errors.Join(fmt.Errorf("%s cannot be locked", lockOf(dir)), err)
		}
	}
}

// The lock of a place lies next to it, so that removing the folder does not
// remove a lock that another process holds.
func lockOf(dir string) string { return dir + lockSuffix }

// Folders returns the existing folders that Release removes.
func (p *Place) Folders() []string {
	dirs := []string{p.Dir}
	if filepath.Base(p.Disk) == filepath.Base(p.Dir) { // otherwise it was not written by Claim
		if _, err := os.Lstat(p.Disk); err == nil {
			dirs = append(dirs, p.Disk)
		}
	}
	return dirs
}

// Release removes the place with its content. Idempotent.
func (p *Place) Release() error {
	if p.lock == nil {
		return nil
	}
	var err error
	for _, dir := range p.Folders() {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if e := os.Remove(lockOf(p.Dir)); !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	if p.scratch != nil {
		err = errors.Join(err, remove(p.scratch))
		p.scratch = nil
	}
	err = errors.Join(err, p.lock.Unlock())
	p.lock = nil
	return err
}

// SweepScratch removes what dead processes left in a scratch folder, or only lists it
// in a dry run.
func SweepScratch(dir string, dry bool) (left []string, err error) {
	locks, err := filepath.Glob(filepath.Join(dir, "*"+lockSuffix))
	for _, file := range locks {
		l, tryErr := try(file)
		if err = errors.Join(err, tryErr); l == nil {
			continue // its process lives
		}
		left = append(left, strings.TrimSuffix(file, lockSuffix))
		if dry {
			err = errors.Join(err, l.Unlock())
			continue
		}
		err = errors.Join(err, os.RemoveAll(strings.TrimSuffix(file, lockSuffix)), remove(l))
	}
	return left, err
}

// Scratch is a folder of this process for files that are not needed after its end. What
// is left after a kill is removed by SweepScratch.
type Scratch struct {
	Dir  string
	lock *flock.Flock
}

// NewScratch makes a folder in parent, and removes what dead processes left there.
func NewScratch(parent string) (*Scratch, error) {
	_, _ = SweepScratch(parent, false) // what it cannot remove is removed later
	dir, lock, err := newLocked(parent)
	if err == nil {
		if err = os.Mkdir(dir, 0o700); err != nil {
			err = errors.Join(err, remove(lock))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("scratch folder: %w", err)
	}
	return &Scratch{dir, lock}, nil
}

// Remove removes the folder with its content.
func (s *Scratch) Remove() error {
	return errors.Join(os.RemoveAll(s.Dir), remove(s.lock))
}

// Leave releases the lock and leaves the place as it is, for the next cleaner.
func (p *Place) Leave() error {
	if p.lock == nil {
		return nil
	}
	err := p.lock.Unlock()
	p.lock = nil
	return err
}

// Living returns the owners of places whose process lives.
func Living() ([]Owner, error) {
	places, err := places()
	var owners []Owner
	for _, dir := range places {
		l := flock.New(lockOf(dir))
		ok, lockErr := l.TryLock()
		if ok {
			err = errors.Join(err, letGo(l, dir))
		} else if o := ownerOf(dir); lockErr == nil && o.Process.State() != Dead { // otherwise a cleaner holds it
			owners = append(owners, o)
		}
	}
	return owners, err
}

// places returns the folders of all places, also those in a folder that became
// full and is no longer used for new places.
func places() (dirs []string, err error) {
	folders := runtimedir.Dirs()
	if len(folders) == 0 {
		_, err = Dir() // gives the reason
		return nil, err
	}
	for _, dir := range folders {
		parent := filepath.Join(dir, placesDir)
		entries, readErr := os.ReadDir(parent)
		if !errors.Is(readErr, fs.ErrNotExist) {
			err = errors.Join(err, readErr)
		}
		for _, e := range entries {
			if e.IsDir() {
				dirs = append(dirs, filepath.Join(parent, e.Name()))
			}
		}
	}
	return dirs, err
}

// letGo releases the lock of a place, and removes its file when the place is
// gone, because trying to lock it creates the file.
func letGo(l *flock.Flock, dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return remove(l)
	}
	return l.Unlock()
}

// sweepPlaces removes the locks of places that do not exist, because their
// process was killed while making or removing them.
func sweepPlaces(dir string) error {
	locks, err := filepath.Glob(filepath.Join(dir, placesDir, "*"+lockSuffix))
	for _, file := range locks {
		place := strings.TrimSuffix(file, lockSuffix)
		if _, statErr := os.Lstat(place); !errors.Is(statErr, fs.ErrNotExist) {
			continue
		}
		l, tryErr := try(file)
		if err = errors.Join(err, tryErr); l != nil {
			err = errors.Join(err, letGo(l, place))
		}
	}
	return err
}

// Stale claims the places of dead processes. Each is locked until it is
// released, so that only one of two cleaners gets it. Stale also removes the
// locks of folders that such processes left.
func Stale() ([]*Place, error) {
	dirs, err := places()
	for _, dir := range runtimedir.Dirs() {
		err = errors.Join(err, sweepLocks(dir), sweepPlaces(dir))
	}
	var stale []*Place
	for _, d := range dirs {
		p := &Place{Dir: d}
		p.lock = flock.New(lockOf(p.Dir))
		ok, lockErr := p.lock.TryLock()
		if lockErr != nil || !ok {
			continue
		}
		if _, statErr := os.Stat(p.Dir); statErr != nil { // released in the meantime
			err = errors.Join(err, p.Release())
			continue
		}
		p.Owner = ownerOf(p.Dir)
		stale = append(stale, p)
	}
	slices.SortFunc(stale, func(a, b *Place) int { return a.Since.Compare(b.Since) })
	return stale, err
}

// ownerOf reads the owner of a place; zero if it cannot be read.
func ownerOf(dir string) (o Owner) {
	b, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if err != nil || json.Unmarshal(b, &o) != nil {
		return Owner{}
	}
	return o
}
