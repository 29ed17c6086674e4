// Package uplink connects the network of a sandbox to the host's, through a
// program of this machine that handles TCP and UDP for it: pasta or
// slirp4netns. It needs no bridge, no packet filter and no root.
//
// It only starts and ends that program. It must not be used for a sandbox that
// was not granted the public network.
package uplink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/output"
)

// Program is a program that can connect a sandbox.
type Program struct {
	Name string
	path string
}

// sandboxed reports whether the program restricts itself with a mount namespace and
// seccomp. It drops root's rights; an ordinary user has none to drop.
func (p *Program) sandboxed() bool { return p.Name == "slirp4netns" && os.Geteuid() == 0 }

// Nameserver is the address inside at which the host's resolver answers.
const Nameserver = "10.0.2.3"

// Packages says what to install if Find finds nothing.
const Packages = "the package passt or slirp4netns (they need " + tun + ", readable and writable)"

// arguments are the arguments of each program. Neither lets the sandbox reach
// the host's loopback.
var arguments = map[string]func(p *Program, userns, netns string) []string{
	"pasta": func(_ *Program, userns, netns string) []string {
		all := []string{
			"--foreground", "--quiet", "--config-net", "--ipv4-only", "--no-map-gw", "--dns-forward", Nameserver,
			"--tcp-ports", "none", "--udp-ports", "none", "--tcp-ns", "none", "--udp-ns", "none",
			"--userns", userns, "--netns", netns, "--no-netns-quit",
		}
		if os.Geteuid() == 0 {
			all = append(all, "--runas", "0:0") // as user nobody it could not enter the namespaces
		}
		return all
	},
	"slirp4netns": func(p *Program, userns, netns string) []string {
		all := []string{"--configure", "--mtu=65520", "--disable-host-loopback", "--userns-path=" + userns, "--netns-type=path"}
		if p.sandboxed() {
			all = append(all, "--enable-sandbox", "--enable-seccomp")
		}
		return append(all, netns, "tap0")
	},
}

// tun is the device that both programs use.
const tun = "/dev/net/tun"

// Find returns a program that works for this user, or nil if there is none.
func Find() *Program {
	if unix.Faccessat(unix.AT_FDCWD, tun, unix.R_OK|unix.W_OK, unix.AT_EACCESS) != nil {
		return nil
	}
	names := []string{"pasta", "slirp4netns"}
	if os.Geteuid() == 0 {
		slices.Reverse(names) // slirp4netns drops more of root's rights
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return &Program{Name: name, path: path}
		}
	}
	return nil
}

// Link is the connection of one sandbox.
type Link struct{ cmd *exec.Cmd }

// upTime is how long a program may take until the sandbox has a route.
const upTime = 10 * time.Second

// Connect connects the network of the process pid, which waits in namespaces of
// its own, and returns when it has a default route. start starts a process from
// a thread that does not end, because its death signal depends on that thread.
func (p *Program) Connect(ctx context.Context, pid int, start func(*exec.Cmd) error) (*Link, error) {
	ns := "/proc/" + strconv.Itoa(pid) + "/ns/"
	cmd := exec.Command(p.path, arguments[p.Name](p, ns+"user", ns+"net")...) //nolint:noctx // runs as long as the sandbox; Close ends it
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if p.sandboxed() {
		// To hide files, slirp4netns detaches what is mounted in its mount namespace
		// and makes only "/" private before. Other mounts that are shared, as under
		// systemd, it would unmount on the host: the file systems of containers, /dev/pts.
		// os/exec makes all mounts of this namespace private.
		cmd.SysProcAttr.Unshareflags = unix.CLONE_NEWNS
	}
	words := output.NewTail(4 << 10)
	cmd.Stdout, cmd.Stderr = words, words
	said := func() string { return strings.ReplaceAll(strings.TrimSpace(words.String()), "\n", "; ") }
	if err := start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	l := &Link{cmd}
	ctx, cancel := context.WithTimeout(ctx, upTime)
	defer cancel()
	for !routed(pid) {
		select {
		case err := <-ended:
			return nil, fmt.Errorf("%s ended: %w: %s", p.Name, err, said())
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%s gave the sandbox no route: %w: %s", p.Name, context.Cause(ctx), said()), l.Close())
		case <-time.After(2 * time.Millisecond):
		}
	}
	return l, nil
}

// Close ends the connection, unless it is nil.
func (l *Link) Close() error {
	if l == nil {
		return nil
	}
	if err := l.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end the network of a sandbox: %w", err)
	}
	return nil
}

// routed reports whether the network of a process has a default route.
func routed(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/net/route")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 7 && f[1] == "00000000" && f[7] == "00000000" {
			return true
		}
	}
	return false
}
