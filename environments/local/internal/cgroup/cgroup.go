// Package cgroup enforces limits of a sandbox with control groups (version 2),
// if this user may make some: as root, or below a group that systemd or a
// cluster has delegated to the user.
//
// It must not move a process that it did not make, nor change a group that is
// not its own, except to enable controllers for its own groups.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Controller is one kind of limit.
type Controller string

// The controllers that are used.
const (
	CPU    Controller = "cpu"
	Memory Controller = "memory"
	Pids   Controller = "pids"
)

var wanted = []Controller{CPU, Memory, Pids}

// Parent is a group below which groups can be made.
type Parent struct {
	dir string
	has []Controller
}

// Find returns the nearest group around this process below which it may make
// groups with at least one of the controllers, or nil if there is none.
func Find() *Parent {
	own, err1 := os.ReadFile("/proc/self/cgroup")
	mounts, err2 := os.ReadFile("/proc/self/mountinfo")
	if err1 != nil || err2 != nil {
		return nil
	}
	path, at, top := "", "", ""
	for line := range strings.Lines(string(own)) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			path = p
		}
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 {
			top, at = fields[3], fields[4]
		}
	}
	if path == "" || at == "" {
		return nil
	}
	return search(at, strings.TrimPrefix(path, strings.TrimSuffix(top, "/")))
}

// search goes from the group path up to the root of the file system at.
func search(at, path string) *Parent {
	if !filepath.IsAbs(path) || strings.HasPrefix(path, "/..") {
		return nil // it belongs to another namespace
	}
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		p := &Parent{dir: filepath.Join(at, path)}
		if p.has = enabled(p.dir); len(p.has) > 0 && writable(p.dir) {
			return p
		}
		if path == "/" {
			return nil
		}
	}
}

// enabled returns the controllers that groups below dir have.
func enabled(dir string) (has []Controller) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return nil
	}
	all := strings.Fields(string(text))
	for _, c := range wanted {
		if slices.Contains(all, string(c)) {
			has = append(has, c)
		}
	}
	return has
}

// writable reports whether we may make groups below dir and start processes in
// them. A process may move between two groups only if it may write to their
// common parent.
func writable(dir string) bool {
	for _, path := range []string{dir, filepath.Join(dir, "cgroup.procs")} {
		if unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) != nil {
			return false
		}
	}
	return true
}

// At returns the group dir as a parent, with its controllers, possibly none. It
// is for tests; Find looks for a group that this process may use.
func At(dir string) *Parent { return &Parent{dir: dir, has: enabled(dir)} }

// Has reports whether limits of that kind are enforced. A nil Parent enforces
// none.
func (p *Parent) Has(c Controller) bool { return p != nil && slices.Contains(p.has, c) }

// Limits are the limits of one group. Zero means no limit.
type Limits struct {
	CPUMilli  int64 // thousandths of a core
	MemoryMiB int64
	Pids      int64
}

// Group is one group, for one sandbox.
type Group struct {
	Path string
	dir  *os.File
}

// period is the period in cpu.max, in microseconds: the kernel's default.
const period = 100_000

// Make makes a group with that name. It ignores a limit whose controller is
// missing; check with Has.
func (p *Parent) Make(name string, l Limits) (*Group, error) {
	g := &Group{Path: filepath.Join(p.dir, name)}
	if err := os.Mkdir(g.Path, 0o755); err != nil {
		return nil, fmt.Errorf("make control group: %w", err)
	}
	err := p.limit(g, l)
	if err == nil {
		g.dir, err = os.Open(g.Path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("control group: %w", err), os.Remove(g.Path))
	}
	return g, nil
}

func (p *Parent) limit(g *Group, l Limits) error {
	for _, v := range p.settings(l) {
		// Not os.WriteFile: with O_CREATE the kernel does not report that a
		// file is missing.
		f, err := os.OpenFile(filepath.Join(g.Path, v.file), os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) && v.optional {
			continue
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString(v.text)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// setting is the value for one file of a group.
type setting struct {
	file, text string
	optional   bool
}

func (p *Parent) settings(l Limits) (all []setting) {
	if l.CPUMilli > 0 && p.Has(CPU) {
		all = append(all, setting{file: "cpu.max", text: fmt.Sprintf("%d %d", max(1000, l.CPUMilli*period/1000), period)})
	}
	if l.Pids > 0 && p.Has(Pids) {
		all = append(all, setting{file: "pids.max", text: strconv.FormatInt(l.Pids, 10)})
	}
	if l.MemoryMiB > 0 && p.Has(Memory) {
		all = append(all, setting{file: "memory.max", text: strconv.FormatInt(l.MemoryMiB<<20, 10)},
			// Otherwise only memory would be limited, and swap would be
			// unlimited. A kernel without swap has no such file.
			setting{file: "memory.swap.max", text: "0", optional: true})
	}
	return all
}

// FD returns the descriptor for clone into the group.
func (g *Group) FD() int { return int(g.dir.Fd()) }

// removeTime is how long the kernel may take to empty a group after its
// processes have died.
const removeTime = 2 * time.Second

// Close removes the group, unless it is nil. Its processes must have ended.
func (g *Group) Close() error {
	if g == nil {
		return nil
	}
	return errors.Join(g.dir.Close(), Remove(g.Path))
}

// Remove removes a group that another process may have made. It is not an error if
// the group is gone.
func Remove(path string) error {
	deadline := time.Now().Add(removeTime)
	for {
		err := unix.Rmdir(path)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("remove control group %s: %w", path, err)
		}
		time.Sleep(time.Millisecond)
	}
}
