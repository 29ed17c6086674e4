// Package node knows the places on this machine's own disk: where sockets,
// locks and control folders of a running berth lie, who owns them, and which
// were left by a process that is gone. It also says who a process is, so that
// another one, perhaps on another machine, can name it and see whether it
// still lives.
//
// It must not know what a run folder holds, and must not touch anything
// outside its own folder.
package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// EnvDir names the folder to use instead of the usual ones.
const EnvDir = "BERTH_RUNTIME_DIR"

// maxDir is how long the path of the folder may be, in bytes: a place in it
// and an attempt's folder in that add 24, which makes the 60 that an attempt
// may have, so that its sockets stay under 100.
const maxDir = 36

// Dir is the folder for what must not lie on a shared file system. It belongs
// to this user alone (0700), and programs can be executed in it. It is
// $BERTH_RUNTIME_DIR, or berth in $XDG_RUNTIME_DIR, or berth-UID in /dev/shm,
// or else in /tmp, and is made when it does not exist. Memory is preferred:
// files that come and go on a disk cost as much as all else that the core does.
func Dir() (string, error) {
	if dir := os.Getenv(EnvDir); dir != "" {
		return usable(dir)
	}
	if x := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(x) {
		if dir, err := usable(filepath.Join(x, "berth")); err == nil {
			return dir, nil
		}
	}
	if shared := "/dev/shm"; inMemory(shared) && kept(os.Getuid()) {
		if dir, err := usable(filepath.Join(shared, folderName())); err == nil {
			return dir, nil
		}
	}
	return usable(filepath.Join("/tmp", folderName()))
}

// folderName is the folder of this user in one that is everybody's.
func folderName() string { return "berth-" + strconv.Itoa(os.Getuid()) }

// kept says whether what a user leaves in /dev/shm outlives his sessions: logind
// removes it after the last one (RemoveIPC, on by default) unless the user is
// the system's, and a run may be no part of a session.
func kept(uid int) bool {
	_, err := os.Stat("/run/systemd/users")
	return uid < 1000 || errors.Is(err, fs.ErrNotExist)
}

// inMemory says whether dir is on a file system in memory.
func inMemory(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC)
}

// disk is a folder of this user on a local disk for what is too large for
// memory; empty when dir is on a disk itself, or there is no other.
func disk(dir string) string {
	if !inMemory(dir) {
		return ""
	}
	temp := os.Getenv("TMPDIR")
	if !filepath.IsAbs(temp) {
		temp = "/var/tmp"
	}
	if inMemory(temp) {
		return ""
	}
	own := filepath.Join(temp, folderName())
	if private(own) != nil {
		return ""
	}
	return own
}

// usable makes dir and says what is wrong with it.
func usable(dir string) (string, error) {
	fail := func(why string) (string, error) {
		return "", fmt.Errorf("runtime folder %s: %s: set %s to a short path of your own on a local disk", dir, why, EnvDir)
	}
	switch {
	case !filepath.IsAbs(dir):
		return fail("not an absolute path")
	case len(dir) > maxDir:
		return fail(fmt.Sprintf("the path has %d bytes, more than %d, too long for the sockets in it", len(dir), maxDir))
	}
	if err := private(dir); err != nil {
		return fail(err.Error())
	}
	var sf unix.Statfs_t
	if unix.Statfs(dir, &sf) == nil && sf.Flags&unix.ST_NOEXEC != 0 {
		return fail("programs may not be executed there (noexec)")
	}
	return dir, nil
}

// private makes dir, which may exist, and says what is wrong with it: it must be
// a folder that nobody else can enter.
func private(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !fi.IsDir():
		return errors.New("not a folder")
	case ok && int(st.Uid) != os.Getuid():
		return fmt.Errorf("belongs to user %d", st.Uid)
	case fi.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("is open to others (%v)", fi.Mode().Perm())
	}
	return nil
}
