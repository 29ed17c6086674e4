package untrusted

import (
	"errors"
	"syscall"
)

// RefusesName reports whether the name alone caused an error of the host's file
// system. Then the author of the name is responsible.
func RefusesName(err error) bool {
	return errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EILSEQ) ||
		errors.Is(err, syscall.EISDIR)
}

// NoSpace reports whether an error means that a disk of this host is full.
func NoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
