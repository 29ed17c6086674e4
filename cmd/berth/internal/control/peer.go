package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

// peer returns the user at the other end of a connection, as the kernel knows it.
func peer(c net.Conn) (uid int, err error) {
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("%T is not a connection of a Unix socket", c)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	if err = raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) //nolint:gosec // a file descriptor is small
	}); err != nil || failed != nil {
		return 0, errors.Join(err, failed)
	}
	return int(cred.Uid), nil
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

// guarded accepts connections of one user, and closes the others.
type guarded struct {
	net.Listener
	uid int
}

// Accept implements net.Listener.
func (g guarded) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if uid, failed := peer(c); failed == nil && uid == g.uid {
			return c, nil
		}
		_ = c.Close() //nolint:errcheck // of a stranger
	}
}
