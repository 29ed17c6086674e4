package maker

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/inside"
	"github.com/berth-eval/berth/plugins/environment"
)

// elsewhere ends every hint.
const elsewhere = `or choose an environment that runs containers (environment "podman" or "docker")`

// ErrForbidden means that this machine does not allow us to make sandboxes. The
// text says why and what to do, in one line.
var ErrForbidden = errors.New("this machine forbids it")

// explainClone turns the errno of a refused clone into advice.
func explainClone(err error) error {
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w: user namespaces are not allowed to this user (%w): an administrator can set kernel.unprivileged_userns_clone=1 or "+
			"kernel.apparmor_restrict_unprivileged_userns=0; in a container, start it with a seccomp profile that allows them; %s", ErrForbidden, err, elsewhere)
	case (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EUSERS)) && forbidden():
		return fmt.Errorf("%w: user namespaces are switched off (%w): an administrator can set user.max_user_namespaces to more than 0; %s",
			ErrForbidden, err, elsewhere)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EUSERS):
		return fmt.Errorf("%w: the limit on namespaces is reached (%w): an administrator can raise user.max_user_namespaces and its neighbors; %s",
			environment.ErrNoCapacity, err, elsewhere)
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return fmt.Errorf("%w: the limit on processes or memory is reached (%w): see ulimit -u and the limits of this session",
			environment.ErrNoCapacity, err)
	default:
		return fmt.Errorf("clone into new namespaces: %w", err)
	}
}

// explainMount turns a refused mount outside the sandbox into advice. Only the
// host's root makes such mounts.
func explainMount(dir string, err error) error {
	switch {
	case errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w: root has no right to mount %s (%w), as in a container: run as an ordinary user, or start the container with "+
			"--privileged; %s", ErrForbidden, dir, err, elsewhere)
	case errors.Is(err, syscall.ENOSYS):
		return tooOld("mount " + dir + ": " + err.Error())
	default:
		return fmt.Errorf("mount %s: %w", dir, err)
	}
}

// tooOld returns the error for a system call that this kernel does not have.
func tooOld(what string) error {
	return fmt.Errorf("%w: this kernel is too old (%s): Linux 5.12 or newer is needed; %s", ErrForbidden, what, elsewhere)
}

// forbidden reports whether namespaces are switched off, as opposed to used up.
func forbidden() bool {
	text, err := os.ReadFile("/proc/sys/user/max_user_namespaces")
	return err == nil && strings.TrimSpace(string(text)) == "0"
}

// explain turns a failed step into advice. cause is the error of our own side,
// if there was one.
func explain(f inside.Failure, cause error) error {
	if errors.Is(cause, ids.ErrNoRange) {
		return fmt.Errorf("%w: %w", environment.ErrNoCapacity, cause)
	}
	if cause != nil {
		return cause
	}
	errno := syscall.Errno(f.Errno)
	denied := errno == syscall.EPERM || errno == syscall.EACCES
	where := f.Step + ": " + f.Text
	switch {
	case errno == syscall.ENOSYS:
		return tooOld(where)
	case denied && f.Step == "proc", errno == syscall.EROFS && f.Step == "user namespaces": // container engines mask both
		return fmt.Errorf("%w: no separate /proc (%s): parts of this machine's /proc are masked, as in a container: run outside of it, "+
			"or start the container with its /proc unmasked (docker run --security-opt systempaths=unconfined); %s", ErrForbidden, where, elsewhere)
	case denied && (f.Step == "staging" || f.Step == "session keyring" || f.Step == "user namespaces"):
		return fmt.Errorf("%w: a user namespace has no rights here (%s): AppArmor or SELinux restricts it: an administrator can set "+
			"kernel.apparmor_restrict_unprivileged_userns=0; %s", ErrForbidden, where, elsewhere)
	case f.Step == "layers" && (denied || errno == syscall.ENODEV) && strings.Contains(f.Text, "overlay"):
		return fmt.Errorf("%w: no overlay in a user namespace (%s): it needs Linux 5.11 or newer with overlayfs; %s", ErrForbidden, where, elsewhere)
	case f.Step == "layers" && errno == syscall.EINVAL:
		return fmt.Errorf("%w: a folder of this machine cannot be a layer of a sandbox (%s): its file system is not one for layers, or consists of "+
			"layers in two levels already, as in a container inside a container, or something was mounted below it meanwhile; %s", ErrForbidden, where, elsewhere)
	case errno == syscall.EDQUOT && f.Step == "session keyring":
		return fmt.Errorf("%w: %s: the user's quota of kernel keys is used up: an administrator can raise kernel.keys.maxkeys",
			environment.ErrNoCapacity, where)
	case errno == syscall.ENOSPC && f.Step == "files":
		return fmt.Errorf("%s: the files of the image do not fit into the storage limit", where)
	case errno == syscall.ENOMEM, errno == syscall.ENOSPC:
		return fmt.Errorf("%w: %s", environment.ErrNoCapacity, where)
	default:
		return errors.New(where)
	}
}
