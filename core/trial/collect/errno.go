package collect

import (
	"errors"
	"syscall"
)

func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// RefusesName is true for errors of this host that a name alone causes, which is
// whoever made the name.
func RefusesName(err error) bool {
	return errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EILSEQ) ||
		errors.Is(err, syscall.EISDIR)
}
