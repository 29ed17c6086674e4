package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// errBroken is the error of a step that a test makes fail.
var errBroken = errors.New("broken on purpose, by a test")

// step is one stage of the set-up.
type step struct {
	name string
	do   func() error
}

// Steps returns the names of all steps, in order.
func Steps() (names []string) {
	for _, s := range (&builder{}).steps() {
		names = append(names, s.name)
	}
	return names
}

// Enter builds the sandbox and returns inside it. If probe is set, the caller
// must end instead of becoming sandboxd. On an error the caller must report it
// with Fail and exit at once. On success the caller executes another program,
// which closes the channel, and the plugin waits for that.
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
	// If the channel closes without this message, the process died.
	return b.plan.Probe, unix.Sendmsg(Channel, []byte(Ready), nil, nil, 0)
}

type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// Fail sends err to the plugin. It returns an error if there is no plugin.
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

// builder is the state that one step leaves to the next.
type builder struct {
	plan   Plan
	fds    []int          // received with the plan
	opened map[string]int // path of a Source → descriptor, opened before Staging was covered
	serial int            // of mount points outside the root

	overlays int // how many were mounted
}

// root is the root of the sandbox, relative to the staging folder. That folder
// is the working directory during the mounts, because absolute paths of the
// host would show in /proc/mounts.
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
		{"end with the plugin", endWithPlugin},
	}
}

// maxFDs is the kernel's limit for one message (SCM_MAX_FD).
const maxFDs = 253

// receive waits for the plan, which comes after our ids are mapped.
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

// alone makes sure that these steps never run in the host's own namespaces,
// which would be the worst accident. It fails unless this is PID 1 of a new pid
// namespace, the host's user 0 is not among our ids, and no namespace is shared
// with the plugin.
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
		// Inside, host, count. The initial namespace has exactly one line: 0 0
		// 2^32-1.
		if f := strings.Fields(line); len(f) != 3 || f[1] == "0" && !b.plan.Nested || f[2] == "4294967295" {
			return fmt.Errorf("uid_map has the line %q: user 0 of the host would be mapped", strings.TrimSpace(line))
		}
	}
	if os.Getuid() != 0 || os.Getgid() != 0 {
		return fmt.Errorf("user and group are %d and %d, not 0", os.Getuid(), os.Getgid())
	}
	return nil
}

// keyring leaves the session keyring of the user who started the plugin. It may
// contain tickets and would otherwise be inherited.
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
	// A limit of one byte is the only value with which the kernel does not
	// start the host's crash handler, as the host's root, on a core dump of a
	// hostile program.
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}); err != nil {
		return err
	}
	if n := b.plan.Nproc; n > 0 {
		// The kernel counts per user namespace and user, so neither the host's
		// processes nor other sandboxes count (Linux 5.14).
		return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: n, Max: n})
	}
	return nil
}

// ownGroup makes our control group the visible root of the groups. It cannot be
// done at clone, because the namespace would then begin at the plugin's own
// group.
func ownGroup() error {
	err := unix.Unshare(unix.CLONE_NEWCGROUP)
	if errors.Is(err, unix.EINVAL) {
		return nil // a kernel without control groups
	}
	return err
}

// noUserNamespaces forbids further user namespaces, like the default of
// container engines: most kernel exploits need the capabilities that they give.
func noUserNamespaces() error {
	return os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0)
}

func (b *builder) hostname() error { return unix.Sethostname([]byte(b.plan.Host)) }

// pivot makes root the root and detaches the host's tree. Both arguments are
// ".": the old root is mounted over the new one and detached from there, so it
// needs no folder. Detaching makes the host unreachable, which chroot would
// not.
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
		// The host's folders can still be reached through these descriptors.
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

// workdir makes the working folder. It runs after the root was changed, so a
// link on the path can lead only into the sandbox.
func (b *builder) workdir() error {
	if b.plan.Workdir == "" {
		return nil
	}
	return os.MkdirAll(b.plan.Workdir, 0o755)
}

// endWithPlugin ends the sandbox when the plugin ends.
//
// The kernel clears the death signal of a thread when its ids change
// (commit_creds). So the plugin's own setting at clone would be lost in
// become.Become, which changes the ids. endWithPlugin therefore makes that change first
// and then sets the signal. The same change in Become later has no effect.
func endWithPlugin() error {
	if !become.OneID() {
		if err := become.ChangeID(); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("death signal: %w", err)
	}
	// The plugin may have died just before. Then its end of the channel is
	// closed.
	poll := []unix.PollFd{{Fd: Channel, Events: unix.POLLRDHUP}}
	if n, err := unix.Poll(poll, 0); err != nil || n > 0 {
		return errors.Join(errors.New("the plugin has ended"), err)
	}
	return nil
}
