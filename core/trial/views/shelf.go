package views

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/berth-eval/berth/plugins/task"
)

// What a Shelf keeps, in bytes of memory: of one view, and at all.
const (
	shelvedView = 1 << 20
	shelvedAll  = 32 << 20
	page        = 4 << 10 // that each file takes at least
)

// Shelf keeps what roles see of tasks in every attempt, and views get links to
// its files instead of copies: making files is a large part of what the core does
// for a short attempt. So no file of a view may be written to, which plugins
// know. nil keeps nothing. Safe for concurrent use.
type Shelf struct {
	dir string

	mu   sync.Mutex
	kept map[Seen]*kept // nil: made once, and not kept
	made int            // views, for their names
	left int64          // bytes
}

// NewShelf keeps files in the folder dir, which it makes and somebody else
// removes. It must be on the file system of views that have a Room.
func NewShelf(dir string) *Shelf {
	return &Shelf{dir: dir, kept: map[Seen]*kept{}, left: shelvedAll}
}

// Seen is what a view is of. Views of the same are the same.
type Seen struct {
	Task  *task.Task
	Looks string // how its files look: another text when they have changed
	Role  task.Role
	Stage string
}

// kept is a view on the shelf. The zero value is one that is not worth it.
type kept struct {
	dir   string
	items []item // in an order in which they can be made
	bytes int64
}

// Build is the function Build with links to what is on the shelf, and puts there
// what it makes for the second time. A view without a Room may be on another file
// system, and gets copies.
func (s *Shelf) Build(dir string, what Seen, room *Room) error {
	k := kept{}
	if s != nil && room != nil {
		k = s.find(what)
	}
	if len(k.items) == 0 {
		return Build(dir, what.Task, what.Role, what.Stage, room)
	}
	if err := room.take(k.bytes); err != nil {
		return err
	}
	return k.link(dir)
}

// find is the view on the shelf, if it is there or is worth it now.
func (s *Shelf) find(what Seen) kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, again := s.kept[what]
	switch {
	case !again: // most tasks of a large run are tried once
		s.kept[what] = nil
		return kept{}
	case k == nil:
		k = &kept{}
		if made, err := s.make(what); err == nil {
			*k = made
		}
		s.kept[what] = k
	}
	return *k
}

// make puts a view on the shelf.
func (s *Shelf) make(what Seen) (k kept, err error) {
	s.made++
	k.dir = filepath.Join(s.dir, strconv.Itoa(s.made))
	most := min(shelvedView, s.left)
	if err = os.MkdirAll(s.dir, 0o700); err == nil {
		err = Build(k.dir, what.Task, what.Role, what.Stage, &Room{Left: most})
	}
	if err == nil {
		err = k.list()
	}
	takes := k.bytes + page*int64(len(k.items))
	if err == nil && takes > most {
		err = ErrNoRoom
	}
	if err != nil {
		_ = os.RemoveAll(k.dir) // what is left goes with the folder of the shelf
		return kept{}, err
	}
	s.left -= takes
	return k, nil
}

// list finds out what was made.
func (k *kept) list() error {
	return filepath.WalkDir(k.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		it := item{folder: d.IsDir()}
		if it.name, err = filepath.Rel(k.dir, p); err != nil {
			return err
		}
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case d.Type() == fs.ModeSymlink:
			it.link, err = os.Readlink(p)
		case !it.folder:
			k.bytes += info.Size()
		}
		k.items = append(k.items, it)
		return err
	})
}

// link makes the new folder dir like the view on the shelf.
func (k *kept) link(dir string) (err error) {
	for _, it := range k.items {
		to := filepath.Join(dir, it.name)
		switch {
		case it.folder:
			err = os.Mkdir(to, 0o700)
		case it.link != "":
			err = os.Symlink(it.link, to)
		default:
			err = os.Link(filepath.Join(k.dir, it.name), to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
