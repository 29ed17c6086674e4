package sandboxtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/become"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd"
)

// plan is sent by the test to the process that builds the sandbox.
type plan struct {
	Options

	Control string // used if no descriptor was passed
}

// channel is the descriptor on which the plan arrives and an error is returned.
const channel = 3

// root is where the sandbox is built: on a tmpfs in its mount namespace.
const (
	staging = "/mnt"
	root    = staging + "/root"
)

// init locks main to the first thread, because credentials are set per thread.
func init() {
	if os.Args[0] == initName || os.Args[0] == become.RunName {
		runtime.LockOSThread()
	}
}

// inside builds the sandbox around this process and executes sandboxd. If any
// step fails, the process ends.
func inside() error {
	unix.CloseOnExec(channel)
	err := build()
	if err != nil {
		_, _ = unix.Write(channel, []byte(err.Error()))
	}
	return err
}

func build() error {
	p, fds, err := receive()
	if err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"check that we are alone", alone},
		{"limits", func() error { return limit(p.Processes) }},
		{"staging", func() error { return stage(p.SizeMiB) }},
		{"folders", folders},
		{"devices", devices},
		{"proc", func() error {
			return unix.Mount("proc", root+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		}},
		{"control folder", func() error { return control(p, fds) }},
		{"loopback", loopback},
		{"change root", pivot},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	var args []string
	if p.Stream {
		args = []string{sandboxd.StreamArgument}
	}
	if p.Entrypoint {
		return unix.Exec(sandboxd.Path, append([]string{sandboxd.Path}, args...), []string{"PATH=/bin", "OF_THE_ENGINE=1"})
	}
	if p.Plain {
		return unix.Exec(sandboxd.Path, append([]string{become.RunName}, args...), []string{"GOMAXPROCS=" + strconv.Itoa(become.Procs)})
	}
	if p.NoOwnCap {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, become.OwnCap, 0, 0, 0); err != nil {
			return err
		}
	}
	return become.Become(sandboxd.Path, args...)
}

func receive() (p plan, fds []int, err error) {
	data, oob := make([]byte, 16<<10), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(channel, data, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return p, nil, err
	}
	if err = json.Unmarshal(data[:n], &p); err != nil {
		return p, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return p, nil, err
	}
	for _, m := range messages {
		if fds, err = unix.ParseUnixRights(&m); err != nil {
			return p, nil, err
		}
	}
	return p, fds, nil
}

// alone makes sure that these steps never run in the host's own namespaces,
// which would be the worst accident.
func alone() error {
	if os.Getpid() != 1 {
		return fmt.Errorf("pid is %d, not 1", os.Getpid())
	}
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return err
	}
	if f := strings.Fields(string(b)); len(f) != 3 || f[2] == "4294967295" {
		return errors.New("the user namespace is the host's")
	}
	return nil
}

func limit(processes int) error {
	unix.Umask(0o022)
	if processes == 0 {
		return nil
	}
	n := uint64(processes)
	return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: n, Max: n})
}

func stage(size int) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("berth", staging, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=0755,size=%dm", size)); err != nil {
		return err
	}
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	return unix.Mount(root, root, "", unix.MS_BIND, "")
}

// folders makes the root: the host's programs, read-only, and its own users.
func folders() error {
	for _, name := range []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "etc/alternatives"} {
		if _, err := os.Stat("/" + name); err != nil {
			continue
		}
		if target, err := os.Readlink("/" + name); err == nil {
			if err = os.Symlink(target, root+"/"+name); err != nil {
				return err
			}
		} else if err := errors.Join(os.MkdirAll(root+"/"+name, 0o755), bind("/"+name, root+"/"+name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"app", "tmp", "home/alice", "root", "var/tmp", "run", "logs/verifier", "tests", "berth", "proc", "dev/pts", "dev/shm", "etc"} {
		if err := os.MkdirAll(root+"/"+name, 0o755); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\nbob:x:1001:100::/home/bob:/bin/sh\n",
		"group":  "root:x:0:\nusers:x:100:\nalice:x:1000:\nstaff:x:50:alice,bob\n",
		"hosts":  "127.0.0.1 localhost\n",
	} {
		if err := os.WriteFile(root+"/etc/"+name, []byte(content), 0o644); err != nil {
			return err
		}
	}
	if b, err := os.ReadFile("/etc/ld.so.cache"); err == nil {
		_ = os.WriteFile(root+"/etc/ld.so.cache", b, 0o644) // programs start without it, too
	}
	return os.Chmod(root+"/tmp", 0o777|os.ModeSticky)
}

// bind mounts read-only. It does not remount, because a remount must repeat
// every flag that the namespace has locked.
func bind(from, to string) error {
	return errors.Join(unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""), readOnly(to))
}

func readOnly(path string) error {
	return unix.MountSetattr(unix.AT_FDCWD, path, 0, &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
	})
}

func devices() error {
	dev := root + "/dev"
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		f, err := os.OpenFile(dev+"/"+name, os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return err
		}
		_ = f.Close()
		if err := unix.Mount("/dev/"+name, dev+"/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, dev+"/"+name); err != nil {
			return err
		}
	}
	return unix.Mount("devpts", dev+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
}

func control(p plan, fds []int) error {
	target := root + "/berth"
	var err error
	if len(fds) == 0 {
		err = unix.Mount(p.Control, target, "", unix.MS_BIND, "")
	} else {
		err = unix.MoveMount(fds[0], "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	if err != nil || p.Writable {
		return err
	}
	return readOnly(target)
}

// loopback switches on lo, which is the only network.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // used for one ioctl
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// pivot makes root the root and unmounts the host's tree.
func pivot() error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	return errors.Join(unix.Unmount(".", unix.MNT_DETACH), os.Chdir("/"))
}
