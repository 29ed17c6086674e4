package modetest

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// putUp changes what this mount namespace sees.
func putUp(place Place) error {
	switch place {
	case OverlaidUsr:
		dir, err := os.MkdirTemp(os.Getenv(markTools), "usr-")
		if err != nil {
			return err
		}
		if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
			return err
		}
		if err := errors.Join(os.Mkdir(dir+"/u", 0o755), os.Mkdir(dir+"/w", 0o755)); err != nil {
			return err
		}
		return unix.Mount("none", "/usr", "overlay", 0, "lowerdir=/usr,upperdir="+dir+"/u,workdir="+dir+"/w")
	case MaskedProc:
		return unix.Mount("none", "/proc/irq", "tmpfs", unix.MS_RDONLY, "")
	case MountedUsr:
		return mountBelowUsr()
	default:
		return nil
	}
}

// mountBelowUsr mounts on folders and files below /usr, also on one another.
func mountBelowUsr() error {
	const src, space, nested, closed = "/usr/src", "/usr/src/with space, comma", "/usr/src/with space, comma/nested:1", "/usr/src/closed"
	tmpfs := func(at, mode string) func() error {
		return func() error { return unix.Mount("none", at, "tmpfs", 0, "mode="+mode) }
	}
	folder := func(at string) func() error { return func() error { return os.Mkdir(at, 0o755) } }
	file := func(at string, mode os.FileMode) func() error {
		return func() error { return os.WriteFile(at, []byte("#!/bin/sh\necho "+at+"\n"), mode) }
	}
	over := func(from, at string) func() error {
		return func() error { return unix.Mount(from, at, "", unix.MS_BIND, "") }
	}
	for _, step := range []func() error{
		tmpfs(src, "755"), file(src+"/tool", 0o755), file(src+"/secret", 0o600), file(src+"/pip.conf", 0o644),
		file(src+"/under", 0o644), over(src+"/tool", src+"/under"), // as container engines do with /etc/hosts and drivers
		folder(space), file(space+"/tool", 0o755), folder(space + "/beside"), file(space+"/beside/tool", 0o755),
		folder(nested), tmpfs(nested, "755"), file(nested+"/tool", 0o755), file(nested+"/secret", 0o600), file(nested+"/npmrc", 0o644),
		folder(closed), tmpfs(closed, "700"), file(closed+"/secret", 0o644), // what only root may enter
		over(src+"/tool", "/usr/lib/os-release"),
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
