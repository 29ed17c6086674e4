package control

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/plugins/runtimedir"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// PointerFile is the file in the folder of a run that says where its socket is,
// while a process runs it: the path of a socket has at most 107 bytes, and that of a
// run may have more. After a kill it stays until the run is resumed.
const PointerFile = "control.json"

// maxPointer is the largest size of PointerFile in bytes.
const maxPointer = 8 << 10

// socketsDir is the folder of the sockets in the runtime folder.
const socketsDir = "c"

// socketName returns the file name of the socket of the run in dir. It depends on
// where the folder really is: a copy of a run has another socket.
func socketName(dir string) (string, error) {
	folder, err := filepath.EvalSymlinks(dir)
	if err == nil {
		folder, err = filepath.Abs(folder)
	}
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(folder))
	return hex.EncodeToString(sum[:8]), nil
}

// newSocket returns a path for the socket of the run in dir, in a folder of this user
// alone. It removes a socket that a killed process left; the caller has the lock of
// the run, so that no other process serves it.
func newSocket(dir string) (string, error) {
	name, err := socketName(dir)
	if err != nil {
		return "", err
	}
	runtime, err := node.Dir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(runtime, socketsDir)
	if err = runtimedir.Make(folder); err != nil {
		return "", err
	}
	path := filepath.Join(folder, name)
	if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return path, err
}

// pointed reads the pointer of the run in dir. A run folder may be of another user,
// who must not choose which of this user's sockets gets requests: the socket has to
// be the run's own, and in a folder of this user alone.
func pointed(dir string) (*output.CtlPointer, error) {
	b, err := untrusted.Read(dir, PointerFile, maxPointer)
	if err != nil {
		return nil, err
	}
	p := &output.CtlPointer{}
	if err = json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, PointerFile), err)
	}
	name, err := socketName(dir)
	if err != nil {
		return nil, err
	}
	if !filepath.IsAbs(p.Socket) || filepath.Base(p.Socket) != name || filepath.Base(filepath.Dir(p.Socket)) != socketsDir {
		return nil, fmt.Errorf("%s: %q is not the socket of this run", filepath.Join(dir, PointerFile), p.Socket)
	}
	return p, nil
}

// ours returns why a socket, or its folder, is not this user's alone.
func ours(socket string) error {
	if err := runtimedir.Ours(filepath.Dir(socket)); err != nil {
		return err
	}
	info, err := os.Lstat(socket)
	if err != nil {
		return err
	}
	of, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is not a socket", socket)
	case !ok || int(of.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", socket)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to others (mode %#o)", socket, info.Mode().Perm())
	}
	return nil
}

// NameOf returns the login name of a user, or the number of one that has no account
// on this machine.
func NameOf(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	if login := os.Getenv("USER"); login != "" && uid == os.Getuid() {
		return login // from a directory service, which this program cannot ask
	}
	return strconv.Itoa(uid)
}
