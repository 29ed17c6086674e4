package changes

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/sandbox/internal/beneath"
)

// Bounds of Everything: entries that it looks at, and folders in one another.
const (
	maxEntries = 500_000
	maxDepth   = 200
)

// Everything compares all files, folders and links below the root and below each
// mount point. Devices, sockets, pipes and the kernel's file systems do not count.
// It fails if there is more than it can look at: an agent decides how much there
// is.
func (s *Search) Everything() error {
	points, err := mountPoints()
	if err != nil {
		return err
	}
	w := walk{s: s}
	for _, at := range append([]string{"/"}, points...) {
		if err := w.open(unix.AT_FDCWD, at, at, 0); err != nil {
			return err
		}
	}
	return nil
}

type walk struct {
	s       *Search
	entries int
}

// open opens a folder and compares it and all below it, unless nothing can be
// written there. A folder that is not there any more changed the one that had it.
func (w *walk) open(fd int, base, name string, depth int) error {
	at, err := unix.Openat2(fd, base, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	for _, gone := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP} {
		if errors.Is(err, gone) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer unix.Close(at) //nolint:errcheck // a folder that was only read
	var fs unix.Statfs_t
	if beneath.Special(at) || unix.Fstatfs(at, &fs) == nil && fs.Flags&unix.ST_RDONLY != 0 {
		return nil
	}
	sub, err := unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	dir := os.NewFile(uintptr(sub), name)
	defer dir.Close()
	return w.folder(dir, name, depth)
}

// folder compares an open folder and all below it.
func (w *walk) folder(dir *os.File, name string, depth int) error {
	fd := int(dir.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if !w.s.first(fmt.Sprint("all ", st.Dev, " ", st.Ino)) {
		return nil
	}
	w.s.compare(name, &st)
	if w.s.pristine(fd, &st) {
		return nil // a write below it would have copied this folder up, too
	}
	if depth > maxDepth {
		return fmt.Errorf("%w: more than %d folders in one another", fault.ErrTooLarge, maxDepth)
	}
	for {
		entries, end := dir.ReadDir(1000)
		for _, e := range entries {
			if w.entries++; w.entries > maxEntries {
				return fmt.Errorf("%w: more than %d files", fault.ErrTooLarge, maxEntries)
			}
			if err := w.entry(fd, name, e.Name(), depth); err != nil {
				return err
			}
		}
		if errors.Is(end, io.EOF) || errors.Is(end, unix.ENOENT) { // it was removed, which changed the folder above
			return nil
		}
		if end != nil {
			return fmt.Errorf("read %s: %w", name, end)
		}
	}
}

func (w *walk) entry(fd int, folder, base string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); errors.Is(err, unix.ENOENT) {
		return nil // it is gone, which changed the folder
	} else if err != nil {
		return fmt.Errorf("look at %s: %w", path.Join(folder, base), err)
	}
	name := path.Join(folder, base)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFLNK:
		w.s.compare(name, &st)
	case unix.S_IFDIR:
		return w.open(fd, base, name, depth+1)
	}
	return nil
}

// mountPoints returns where something is mounted.
func mountPoints() (points []string, err error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if at, err := strconv.Unquote(`"` + strings.ReplaceAll(fields[4], `"`, `\"`) + `"`); err == nil { // \040 is a space
			points = append(points, at)
		}
	}
	return points, lines.Err()
}
