package listing

import (
	"path"
	"slices"
	"strings"
)

// Compare returns the names of what was added, changed or removed between two lists
// of the same places, sorted. The content of a folder that was added or removed is
// left out where the folder was known. A folder stands for what was removed from it
// if nothing else below it has changed.
func (l *List) Compare(now *List) []string {
	d := difference{before: l, now: now, found: map[string]bool{}, above: map[string]bool{}}
	var folders []string // in which something may have been removed
	for name, f := range l.files {
		switch g, there := now.files[name]; {
		case !there || differs(f, g):
			d.add(name)
		case f.folder() && f.changed != g.changed && l.whole[name]: // the names in it were not listed
			folders = append(folders, name)
		}
	}
	for name, g := range now.files {
		if _, there := l.files[name]; there || l.ofImage(name) && g.changed < l.made {
			continue
		}
		if g.folder() && l.ofImage(name) { // it is new, or something below it is
			folders = append(folders, name)
		} else {
			d.add(name)
		}
	}
	for name := range l.mounts {
		if !now.mounts[name] {
			d.add(mountPoint(name))
		}
	}
	for name := range now.mounts {
		if !l.mounts[name] {
			d.add(mountPoint(name))
		}
	}
	slices.Sort(folders)
	for _, name := range slices.Backward(folders) { // what is in a folder comes after it
		if !d.above[name] {
			d.add(name)
		}
	}
	return d.sorted()
}

type difference struct {
	before, now *List
	found       map[string]bool
	above       map[string]bool // folders with something below them that was found
}

func (d *difference) add(name string) {
	d.found[name] = true
	for dir := path.Dir(name); dir != "/" && !d.above[dir]; dir = path.Dir(dir) {
		d.above[dir] = true
	}
}

// sorted leaves out what lies in a folder that was added or removed.
func (d *difference) sorted() (names []string) {
	for name := range d.found {
		inside := false
		for dir := path.Dir(name); dir != "/" && !inside; dir = path.Dir(dir) {
			_, was := d.before.files[dir]
			_, is := d.now.files[dir]
			inside = d.found[dir] && was != is
		}
		if !inside {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func mountPoint(key string) string {
	at, _, _ := strings.Cut(key, "\x00")
	return at
}

// differs compares two states of a file. The inode, size and time of a folder change
// with its content.
func differs(f, g file) bool {
	if f.folder() && g.folder() {
		f.inode, f.size, f.changed = g.inode, g.size, g.changed
	}
	return f != g
}

// ofImage reports whether the list leaves out a name because a folder above it was
// still the image's.
func (l *List) ofImage(name string) bool {
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if l.whole[dir] {
			return true
		}
	}
	return false
}

// Cache reports whether a name is one of Python's caches, see system.Places.
func (l *List) Cache(name string) bool { return l.places.Cache(name) }
