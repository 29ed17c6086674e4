// Package runtimedir finds the folders for data of Berth and its plugins that
// must be on this machine and belong to this user alone: sockets, locks,
// control folders, records of sandboxes. It is the only place that knows where
// these folders may be.
//
// Folders that every user can write to, such as /tmp, may already contain
// folders of other users. So a name in them proves nothing: a folder is used
// only if it is not a link, belongs to this user, is closed to all other users,
// and a file can be written in it. Otherwise the next choice is tried.
//
// It must not know what these folders contain, and removes nothing from them.
package runtimedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Env is the variable that names the folder to use instead of the usual ones.
const Env = "BERTH_RUNTIME_DIR"

// MaxPath is the longest path of the folder, in bytes. An attempt's folder in
// it adds 24, which makes the 60 that an attempt may have, so that the paths of
// its sockets stay under 100.
const MaxPath = 36

// Finder finds the folders of a user. The zero value cannot be used; see For.
type Finder struct {
	UID    int                 // on the machine, which can differ from os.Getuid in a user namespace
	Getenv func(string) string // of the process
	// Memory and Temp are folders, in memory and on a disk, that every user can
	// write to.
	Memory, Temp []string
}

// For returns the finder of this machine for a user.
func For(uid int) Finder {
	return Finder{UID: uid, Getenv: os.Getenv, Memory: []string{"/dev/shm"}, Temp: []string{"/tmp", "/var/tmp"}}
}

// Dir calls [Finder.Dir] for the user of this process.
func Dir() (string, error) { return For(os.Getuid()).Dir() }

// Dirs calls [Finder.Dirs] for the user of this process.
func Dirs() []string { return For(os.Getuid()).Dirs() }

// Lasting calls [Finder.Lasting] for the user of this process.
func Lasting() (string, error) { return For(os.Getuid()).Lasting() }

// Disk calls [Finder.Disk] for the user of this process.
func Disk() string { return For(os.Getuid()).Disk() }

// Dir returns the folder for data of current runs. It is the first usable one
// of: $BERTH_RUNTIME_DIR, which must be usable if it is set; berth in
// $XDG_RUNTIME_DIR; a folder of this user in memory (/dev/shm);
// $XDG_STATE_HOME/berth or ~/.local/state/berth; a folder of this user in
// $TMPDIR, /tmp or /var/tmp. Dir makes it if it does not exist.
//
// Its path is short enough for sockets, programs can be executed in it, it is
// on a disk of this machine and, unless the user names it, has some space left.
// Memory is preferred, because on a disk creating and removing files costs as
// much as everything else that the core does.
func (f Finder) Dir() (string, error) {
	dir, _, err := f.choose()
	return dir, err
}

// Dirs returns the folder of Dir and the earlier choices that can no longer be
// used, for example because they are full. They may still contain files of
// earlier runs.
func (f Finder) Dirs() []string {
	dir, passed, err := f.choose()
	if err == nil {
		passed = append(passed, dir)
	}
	return passed
}

// choose is Dir. passed are folders of this user that cannot be used now.
func (f Finder) choose() (dir string, passed []string, err error) {
	if dir = f.Getenv(Env); dir != "" {
		if err = usable(dir, true); err != nil {
			if filepath.IsAbs(dir) && owned(dir) == nil {
				passed = []string{dir}
			}
			return "", passed, fmt.Errorf("runtime folder %s ($%s): %w: set %s to your own short path on a local disk", dir, Env, err, Env)
		}
		return dir, nil, nil
	}
	var errs []error
	for _, choice := range f.choices() {
		if dir, err = choice(); err == nil {
			err = roomy(dir)
		}
		if err == nil {
			return dir, passed, nil
		}
		errs = append(errs, err)
		if dir != "" && owned(dir) == nil {
			passed = append(passed, dir)
		}
	}
	return "", passed, fmt.Errorf("no runtime folder can be made: set %s to your own short path on a local disk: tried\n%w", Env, errors.Join(errs...))
}

// choices returns the functions that find a folder, best first. With an error
// they return the folder that cannot be used, if there is one.
func (f Finder) choices() []func() (string, error) {
	all := []func() (string, error){
		func() (string, error) {
			session, err := f.Session()
			if err != nil {
				return "", err
			}
			dir := filepath.Join(session, "berth")
			return dir, usable(dir, true)
		},
	}
	for _, shared := range f.Memory {
		if InMemory(shared) && kept(f.UID) {
			all = append(all, func() (string, error) { return f.own(shared, true) })
		}
	}
	all = append(all, f.state)
	for _, shared := range f.temps(f.Temp...) {
		all = append(all, func() (string, error) { return f.own(shared, true) })
	}
	return all
}

// temps returns $TMPDIR, if it is set, and these folders.
func (f Finder) temps(shared ...string) []string {
	if t := f.Getenv("TMPDIR"); filepath.IsAbs(t) {
		return append([]string{t}, shared...)
	}
	return shared
}

// Session returns $XDG_RUNTIME_DIR if it belongs to this user. After su it
// often belongs to another user, and not even root may use that one.
func (f Finder) Session() (string, error) {
	dir := f.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		return "", errors.New("XDG_RUNTIME_DIR is not set")
	}
	if err := Ours(dir); err != nil {
		return "", fmt.Errorf("XDG_RUNTIME_DIR: %w", err)
	}
	return dir, nil
}

// state returns the folder in the user's home.
func (f Finder) state() (string, error) {
	state := f.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home := f.Getenv("HOME")
		if !filepath.IsAbs(home) {
			return "", errors.New("HOME is not set")
		}
		// Check this before making anything in it: after su it may belong to
		// another user.
		if err := Ours(home); err != nil {
			return "", fmt.Errorf("HOME: %w", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	dir := filepath.Join(state, "berth")
	if len(dir) > MaxPath {
		return "", tooLong(dir)
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return "", err
	}
	if err := Ours(state); err != nil {
		return "", err
	}
	return dir, usable(dir, true)
}

// Lasting returns the folder for data that all sessions and jobs of this user
// on this machine must share, for example what they keep in one engine,
// whatever their environment variables say. So it is in /tmp or /var/tmp. If
// that is impossible, it is the folder of Dir.
func (f Finder) Lasting() (string, error) {
	for _, shared := range f.Temp {
		if dir, err := f.own(shared, false); err == nil {
			return dir, nil
		}
	}
	return f.Dir()
}

// Disk returns a folder on a disk of this machine, in $TMPDIR or /var/tmp, for
// data that is too large for memory. It is empty if there is none. Its path may
// be long.
func (f Finder) Disk() string {
	for _, shared := range f.temps("/var/tmp") {
		if dir, err := f.own(shared, false); err == nil {
			if InMemory(dir) {
				return ""
			}
			return dir
		}
	}
	return ""
}

// Two variables tell an environment which of its own things belong to one job of a
// scheduler. Several jobs of one user may be on one machine, and must not disturb
// each other.
const (
	// ScratchEnv names folders of this user on disks of this machine, separated by
	// colons. What belongs to a job is in the first one. What dead jobs left in them
	// may be removed. A job lives as long as the file of [JobLock] is locked.
	ScratchEnv = "BERTH_SCRATCH"
	// JobEnv names the job of this process. Empty: it is in none. [NoJob]: it only
	// removes what dead jobs left.
	JobEnv = "BERTH_JOB"
)

// NoJob is a value of JobEnv.
const NoJob = "-"

// JobLock returns the name of the file in a folder of ScratchEnv that a living job
// keeps locked.
func JobLock(job string) string { return "job-" + job + ".lock" }

// Free returns how many bytes are free on the disk of dir, which need not exist
// yet; false if this is not known.
func Free(dir string) (bytes int64, ok bool) {
	for {
		if _, err := os.Lstat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, false
	}
	return int64(fs.Bavail) * fs.Bsize, true //nolint:gosec // far below 2^63
}
