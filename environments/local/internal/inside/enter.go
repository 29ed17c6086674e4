package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// errBroken is what a step fails with that a test wants to fail.
var errBroken = errors.New("broken on purpose, by a test")

// step is one stage of the set-up.
type step struct {
	name string
	do   func() error
}

// Steps are the names of all steps, in their order.
func Steps() (names []string) {
	for _, s := range (&builder{}).steps() {
		names = append(names, s.name)
	}
	return names
}

// Enter builds the sandbox and returns in it, with probe set when the caller
// is to end and not to become sandboxd. On an error the caller must report it
// with Fail and exit at once. On success the caller executes something, which
// closes the channel: that is what the plugin waits for.
//
// The caller has locked its goroutine to the first thread.
func Enter() (probe bool, err error) {
	unix.CloseOnExec(Channel)
	b := &builder{}
	for _, s := range b.steps() {
		err = s.do()
		if err == nil && b.plan.Break == s.name {
			err = errBroken
		}
		if err != nil {
			return false, &stepError{s.name, err}
		}
	}
	// An end of the channel without this is a death, not success.
	_, err = unix.Write(Channel, []byte(Ready))
	return b.plan.Probe, err
}

type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// Fail sends err to the plugin. An error means that there is none.
func Fail(err error) error {
	f := Failure{Step: "execute sandboxd", Text: err.Error()}
	if s, ok := errors.AsType[*stepError](err); ok {
		f.Step, f.Text = s.step, s.err.Error()
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		f.Errno = int(errno)
	}
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return unix.Sendto(Channel, data, unix.MSG_NOSIGNAL, nil)
}

// builder holds what one step leaves to the next.
type builder struct {
	plan   Plan
	fds    []int          // that came with the plan
	opened map[string]int // path of a Source → descriptor, from before Staging was covered
	serial int            // of mount points beside the root
}

// root is the root of the sandbox, relative to the staging folder, which is
// the working directory while mounts are made: absolute paths of the host would
// show in /proc/mounts.
const root = "root"

func (b *builder) steps() []step {
	return []step{
		{"receive plan", b.receive},
		{"check that we are alone", b.alone},
		{"session keyring", keyring},
		{"limits", b.limits},
		{"control group", ownGroup},
		{"sources", b.sources},
		{"staging", b.staging},
		{"layers", b.layers},
		{"folders", b.folders},
		{"devices", b.devices},
		{"user namespaces", noUserNamespaces},
		{"proc", b.proc},
		{"control folder", b.control},
		{"loopback", loopback},
		{"routes", b.routes},
		{"host name", b.hostname},
		{"change root", b.pivot},
		{"files", b.files},
		{"mounts", b.mounts},
		{"resolver", b.resolver},
		{"workdir", b.workdir},
		{"system calls", filterCalls},
		{"end with the plugin", leash},
	}
}

// maxFDs is the kernel's limit for one message (SCM_MAX_FD).
const maxFDs = 253

// receive waits for the plan, which comes when our ids are mapped.
func (b *builder) receive() error {
	data, oob := make([]byte, MaxPlan), make([]byte, unix.CmsgSpace(maxFDs*4))
	n, oobn, flags, _, err := unix.Recvmsg(Channel, data, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return err
	}
	if n == 0 {
		return errors.New("the plugin went away before it sent one")
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return errors.New("it is too long")
	}
	if err = json.Unmarshal(data[:n], &b.plan); err != nil {
		return err
	}
	if b.plan.Version != Version {
		return fmt.Errorf("it is of version %d, this local-init is of version %d: build both from one source", b.plan.Version, Version)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return err
	}
	for _, m := range messages {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			return err
		}
		b.fds = append(b.fds, got...)
	}
	return nil
}

// alone is the guard against the worst accident: these steps in the host's own
// namespaces. PID 1 of a fresh pid namespace, the host's user 0 not among our
// ids, and no namespace shared with the plugin, or nothing happens.
func (b *builder) alone() error {
	if os.Getpid() != 1 {
		return fmt.Errorf("pid is %d, not 1", os.Getpid())
	}
	if len(b.plan.Outside) == 0 {
		return errors.New("the plan does not say what the plugin's namespaces are")
	}
	for name, theirs := range b.plan.Outside {
		ours, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			return err
		}
		if ours == theirs {
			return fmt.Errorf("the %s namespace is the plugin's", name)
		}
	}
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		// Inside, host, count. The initial namespace shows itself as one line
		// 0 0 2^32-1.
		if f := strings.Fields(line); len(f) != 3 || f[1] == "0" && !b.plan.Nested || f[2] == "4294967295" {
			return fmt.Errorf("uid_map has the line %q: user 0 of the host would be mapped", strings.TrimSpace(line))
		}
	}
	if os.Getuid() != 0 || os.Getgid() != 0 {
		return fmt.Errorf("user and group are %d and %d, not 0", os.Getuid(), os.Getgid())
	}
	return nil
}

// keyring gives up the session keyring of whoever started the plugin: it may
// hold tickets, and it would come along.
func keyring() error {
	_, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	switch errno {
	case 0, unix.ENOSYS: // a kernel without keyrings has nothing to leak
		return nil
	default:
		return errno
	}
}

func (b *builder) limits() error {
	unix.Umask(0o022)
	// One byte: the only value at which the kernel does not start the host's
	// crash handler, as the host's root, on what a hostile program left.
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}); err != nil {
		return err
	}
	if n := b.plan.Nproc; n > 0 {
		// Counted per user namespace and user, so neither the host's processes
		// nor other sandboxes count (Linux 5.14).
		return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: n, Max: n})
	}
	return nil
}

// ownGroup makes our control group the root of what is seen of them. Not at
// clone: the namespace would begin at the plugin's own.
func ownGroup() error {
	err := unix.Unshare(unix.CLONE_NEWCGROUP)
	if errors.Is(err, unix.EINVAL) {
		return nil // a kernel without control groups
	}
	return err
}

// noUserNamespaces forbids further ones, as an engine's default does: most
// kernel holes need the capabilities that they give.
func noUserNamespaces() error {
	return os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0)
}

func (b *builder) hostname() error { return unix.Sethostname([]byte(b.plan.Host)) }

// pivot makes root the root and lets go of the host's tree. Both arguments are
// ".": the old root is mounted over the new one and detached from there, so no
// folder for it is needed. Detaching it is what makes the host unreachable;
// chroot would not.
func (b *builder) pivot() error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach the host: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	for _, fd := range b.opened {
		// The host's folders can still be reached through these.
		if err := unix.Close(fd); err != nil {
			return err
		}
	}
	b.opened = nil
	var here, up unix.Stat_t
	if err := unix.Stat("/", &here); err != nil {
		return err
	}
	if err := unix.Stat("/..", &up); err != nil {
		return err
	}
	if here.Ino != up.Ino || here.Dev != up.Dev {
		return errors.New("the root has a parent")
	}
	if b.plan.Probe {
		return nil
	}
	_, err := os.Lstat("/berth/sandboxd")
	return err
}

// workdir is made after the root was changed: a link on its path leads nowhere
// but into the sandbox.
func (b *builder) workdir() error {
	if b.plan.Workdir == "" {
		return nil
	}
	return os.MkdirAll(b.plan.Workdir, 0o755)
}
