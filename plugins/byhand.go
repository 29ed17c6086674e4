package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/runtimedir"
)

// How an author starts a plugin and lets Berth use that process. plugin.proto says
// the same for authors in other languages.
const (
	// ReattachFlag is the argument with which Serve serves without a host.
	ReattachFlag = "--reattach"
	// ReattachEnv is the host's variable that names such processes, as
	// NAME=ADDRESS,… with the names of plugins and the paths of Unix sockets. Serve
	// prints it.
	ReattachEnv = "BERTH_REATTACH"
)

// serveByHand serves list for all hosts that have the line that it prints in
// ReattachEnv, until the process gets SIGINT or SIGTERM.
func serveByHand(list []Plugin, stdout, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	path, lock, err := socketByHand(list[0])
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // nothing was written
	socket, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return err
	}
	server := newServer(stderr, list)
	register(server, list)
	defer context.AfterFunc(ctx, server.Stop)()
	if _, err = fmt.Fprintln(stdout, reattachLine(list, path)); err != nil {
		return err
	}
	return server.Serve(socket)
}

func reattachLine(list []Plugin, path string) string {
	var names []string
	for _, p := range list {
		if name := p.Name + "=" + path; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return fmt.Sprintf("%s='%s'", ReattachEnv, strings.Join(names, ","))
}

// socketByHand returns the path for the socket of a binary whose first plugin is p.
// It is the same each time, so that an author who starts the binary again need not
// change the variable. The lock is held while the socket may be used.
func socketByHand(p Plugin) (path string, lock *os.File, err error) {
	dir, err := runtimedir.Dir()
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(dir, "reattach")
	if err = runtimedir.Make(dir); err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, fmt.Sprintf("%s-%s", p.Kind, p.Name))
	if lock, err = os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return "", nil, err
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("another process already serves %s %q at %s: end it first", p.Kind, p.Name, path)
	}
	if err == nil {
		err = os.RemoveAll(path) // what a process that was killed left behind
	}
	if err != nil {
		return "", nil, errors.Join(err, lock.Close())
	}
	return path, lock, nil
}
