package changes

import (
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Folder lists the links in a folder that is still the image's. Another sandbox
// of the image has the same links in the folder with this path, inode and ctime.
type Folder struct {
	Path  string
	Inode uint64
	Ctime int64 // nanoseconds since 1970
	// Links maps names to targets, without those that end at a file of the same
	// kind in the folder itself.
	Links map[string]string
}

// imageLinks returns the links of a folder that is still the image's. It reads
// them if they are not in Known. ok is false if the folder may have changed.
func (s *Search) imageLinks(at string) (links map[string]string, ok bool) {
	if links, ok := s.image[at]; ok {
		return links, links != nil
	}
	if s.image == nil {
		s.image = map[string]map[string]string{}
	}
	s.image[at] = nil
	dir, err := open(at)
	if err != nil {
		return nil, false
	}
	defer dir.Close()
	f := Folder{Path: at, Links: map[string]string{}}
	var st unix.Stat_t
	if unix.Fstat(int(dir.Fd()), &st) != nil || !s.pristine(int(dir.Fd()), &st) {
		return nil, false
	}
	f.Inode, f.Ctime = st.Ino, st.Ctim.Nano()
	known := slices.IndexFunc(s.Known, func(k Folder) bool { return k.Path == at && k.Inode == f.Inode && k.Ctime == f.Ctime })
	if known >= 0 {
		f.Links = s.Known[known].Links
	} else if !f.read(dir) {
		return nil, false
	} else {
		s.Read = append(s.Read, f)
	}
	s.image[at] = f.Links
	return f.Links, true
}

// read fills in the links. It returns false if there are too many names.
func (f *Folder) read(dir *os.File) bool {
	entries, err := dir.ReadDir(tooMany + 1)
	if err != nil && err != io.EOF || len(entries) > tooMany {
		return false
	}
	beside := map[string]string{}
	for _, e := range entries {
		if e.Type()&os.ModeSymlink == 0 {
			continue
		}
		target, err := readlinkat(int(dir.Fd()), e.Name())
		switch {
		case err != nil:
		case sameKind(e.Name(), target):
			beside[e.Name()] = target
		default:
			f.Links[e.Name()] = target
		}
	}
	for more := true; more; {
		more = false
		for name, target := range beside {
			if _, on := f.Links[target]; on {
				f.Links[name], more = target, true
				delete(beside, name)
			}
		}
	}
	return true
}

// sameKind reports whether a link leads to a file of its own folder that is
// compared whenever the link is.
func sameKind(name, target string) bool {
	return !strings.Contains(target, "/") &&
		(!isLibrary(name) || isLibrary(target)) && (!isPythonStartup(name) || isPythonStartup(target))
}

// imageFolder compares the files elsewhere that the links in a folder of the
// image lead to. It returns false if the folder may have changed.
func (s *Search) imageFolder(at string, which func(string) bool) bool {
	links, ok := s.imageLinks(at)
	for _, name := range slices.Sorted(maps.Keys(links)) {
		if (which == nil || which(name)) && s.leaves(at, links[name]) {
			s.File(path.Join(at, name))
		}
	}
	return ok
}

// leaves reports whether a link in a folder, with this target, leads to a file
// that can have changed and that nothing else compares.
func (s *Search) leaves(dir, target string) bool {
	for range links {
		if !path.IsAbs(target) {
			target = path.Join(dir, target)
		}
		at, _, ok := s.real(path.Dir(target))
		if !ok {
			return false
		}
		if s.covered[at] {
			return false
		}
		of, ok := s.imageLinks(at)
		if !ok {
			return true
		}
		next, ok := of[path.Base(target)]
		if !ok {
			return false
		}
		dir, target = at, next
	}
	return true
}
