// Package runtimedir finds the folders in which Berth and its plugins keep what
// must lie on this machine and belong to this user alone: sockets, locks,
// control folders, records of sandboxes. It is the only place that knows where
// they may be.
//
// Folders that everybody can write to, such as /tmp, are shared with people who
// may have been there first. So nothing in them is taken by its name: a folder
// counts if it is a folder and no link, belongs to this user, is closed to
// everybody else, and a file can be written in it. What does not count is passed
// over for the next choice.
//
// It must not know what is kept in these folders, and removes nothing from them.
package runtimedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Env names the folder to use instead of the usual ones.
const Env = "BERTH_RUNTIME_DIR"

// MaxPath is how long the path of the folder may be, in bytes: an attempt's
// folder in it adds 24, which makes the 60 that an attempt may have, so that its
// sockets stay under 100.
const MaxPath = 36

// Finder finds the folders of a user. The zero value is of no use: see For.
type Finder struct {
	UID    int                 // as the machine knows it, which is not what os.Getuid says in every user namespace
	Getenv func(string) string // of the process
	// Memory and Temp are folders in memory and on a disk that everybody can
	// write to.
	Memory, Temp []string
}

// For is the finder of this machine for a user.
func For(uid int) Finder {
	return Finder{UID: uid, Getenv: os.Getenv, Memory: []string{"/dev/shm"}, Temp: []string{"/tmp", "/var/tmp"}}
}

// Dir is [Finder.Dir] for the user of this process.
func Dir() (string, error) { return For(os.Getuid()).Dir() }

// Dirs is [Finder.Dirs] for the user of this process.
func Dirs() []string { return For(os.Getuid()).Dirs() }

// Lasting is [Finder.Lasting] for the user of this process.
func Lasting() (string, error) { return For(os.Getuid()).Lasting() }

// Disk is [Finder.Disk] for the user of this process.
func Disk() string { return For(os.Getuid()).Disk() }

// Dir is the folder for what runs now. It is the first that can be used of:
// $BERTH_RUNTIME_DIR, which must be usable when it is set; berth in
// $XDG_RUNTIME_DIR; a folder of this user in memory (/dev/shm);
// $XDG_STATE_HOME/berth or ~/.local/state/berth; a folder of this user in
// $TMPDIR, /tmp or /var/tmp. It is made when it does not exist.
//
// Its path is short enough for sockets, programs can be executed in it, it is on
// a disk of this machine and, unless the user names it, has some space left. Memory is preferred: files that come and go on a
// disk cost as much as all else that the core does.
func (f Finder) Dir() (string, error) {
	dir, _, err := f.choose()
	return dir, err
}

// Dirs are the folder of Dir and those before it that cannot be used any more,
// since they are full, for example. What was made in them is still there.
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
			return "", passed, fmt.Errorf("runtime folder %s ($%s): %w: set %s to a short path of your own on a local disk", dir, Env, err, Env)
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
	return "", passed, fmt.Errorf("no runtime folder can be made: set %s to a short path of your own on a local disk: tried\n%w", Env, errors.Join(errs...))
}

// choices are the ways to a folder, best first. With an error they return the
// folder that cannot be used, if there is one.
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
	temps := f.Temp
	if t := f.Getenv("TMPDIR"); filepath.IsAbs(t) {
		temps = append([]string{t}, temps...)
	}
	for _, shared := range temps {
		all = append(all, func() (string, error) { return f.own(shared, true) })
	}
	return all
}

// Session is $XDG_RUNTIME_DIR when it is this user's. After su it is often that
// of somebody else, whose folder must not be used even by root.
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

// state is the folder in the user's home.
func (f Finder) state() (string, error) {
	state := f.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home := f.Getenv("HOME")
		if !filepath.IsAbs(home) {
			return "", errors.New("HOME is not set")
		}
		// Before anything is made in it: it may be somebody else's, after su.
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

// Lasting is the folder for what all sessions and jobs of this user on this
// machine must agree on, whatever their environment names for such things: what
// they keep in one engine, for example. So it is in /tmp or /var/tmp, and only
// where that cannot be it is the folder of Dir.
func (f Finder) Lasting() (string, error) {
	for _, shared := range f.Temp {
		if dir, err := f.own(shared, false); err == nil {
			return dir, nil
		}
	}
	return f.Dir()
}

// Disk is a folder on a disk of this machine for what is too large for memory,
// in $TMPDIR or /var/tmp; empty when there is none. Its path may be long.
func (f Finder) Disk() string {
	temps := []string{"/var/tmp"}
	if t := f.Getenv("TMPDIR"); filepath.IsAbs(t) {
		temps = append([]string{t}, temps...)
	}
	for _, shared := range temps {
		if dir, err := f.own(shared, false); err == nil {
			if InMemory(dir) {
				return ""
			}
			return dir
		}
	}
	return ""
}
