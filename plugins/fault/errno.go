package fault

import (
	"errors"
	"syscall"
)

// Errno wraps an error of the kernel in its sentinel, so that callers outside
// the sandbox can tell errors apart. An error that already has a sentinel, or
// for which there is none, stays unchanged.
func Errno(err error) error {
	var no syscall.Errno
	if err == nil || !errors.As(err, &no) || Sandbox.find(err) != nil {
		return err
	}
	sentinel := error(nil)
	switch no {
	case syscall.ENOENT, syscall.ENOTDIR, syscall.ESRCH:
		sentinel = ErrNotFound
	case syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.ENOEXEC:
		sentinel = ErrDenied
	case syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.EDQUOT:
		sentinel = ErrNoRoom
	case syscall.ELOOP, syscall.EXDEV, syscall.ENXIO, syscall.ENODEV:
		sentinel = ErrUnsafe
	case syscall.EEXIST, syscall.EISDIR, syscall.ENOTEMPTY, syscall.ETXTBSY:
		sentinel = ErrExists
	case syscall.ENAMETOOLONG, syscall.EINVAL, syscall.E2BIG:
		sentinel = ErrInvalid
	default:
		return err
	}
	return &remote{text: err.Error(), is: errors.Join(sentinel, err)}
}
