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
// $BERTH_RUNTIME_DIR, or berth in $XDG_RUNTIME_DIR, or /tmp/berth-UID, and is
// made when it does not exist.
func Dir() (string, error) {
	if dir := os.Getenv(EnvDir); dir != "" {
		return usable(dir)
	}
	if x := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(x) {
		if dir, err := usable(filepath.Join(x, "berth")); err == nil {
			return dir, nil
		}
	}
	return usable("/tmp/berth-" + strconv.Itoa(os.Getuid()))
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
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fail(err.Error())
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return fail(err.Error())
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !fi.IsDir():
		return fail("not a folder")
	case ok && int(st.Uid) != os.Getuid():
		return fail(fmt.Sprintf("belongs to user %d", st.Uid))
	case fi.Mode().Perm()&0o077 != 0:
		return fail(fmt.Sprintf("is open to others (%v)", fi.Mode().Perm()))
	}
	var sf unix.Statfs_t
	if unix.Statfs(dir, &sf) == nil && sf.Flags&unix.ST_NOEXEC != 0 {
		return fail("programs may not be executed there (noexec)")
	}
	return dir, nil
}
