package podman

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// startTime is the longest time until podman must listen. The first start of a
// user sets up its storage.
const startTime = 30 * time.Second

// servers finds the user's server, or starts one of its own.
type servers struct {
	private *private // of the job of this process; nil: it has none
	none    error    // why there is no engine for this process

	mu     sync.Mutex
	found  string
	own    *exec.Cmd
	ended  chan struct{} // closed when own has
	stderr *output.Tail
}

// address returns the user's socket if a server listens there, or else that of
// our own server. Our server is started when it is needed, restarted if it has
// died, and ends with this process.
func (s *servers) address() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own != nil {
		select {
		case <-s.ended:
			s.own, s.found = nil, ""
		default:
		}
	}
	if s.found != "" {
		return s.found, nil
	}
	if s.none != nil {
		return "", s.none
	}
	if host := os.Getenv("CONTAINER_HOST"); host != "" {
		if _, err := engine.SocketPath(host); err != nil {
			return "", fmt.Errorf("CONTAINER_HOST: %w", err)
		}
		s.found = host
		return host, nil
	}
	for _, path := range candidates() {
		if s.private == nil && listens(path) {
			s.found = "unix://" + path
			return s.found, nil
		}
	}
	address, err := s.start()
	if err == nil {
		s.found = address
	}
	return address, err
}

// candidates returns the usual places of the sockets of this user's servers.
func candidates() []string {
	var all []string
	if run, err := runtimedir.For(os.Getuid()).Session(); err == nil {
		all = append(all, filepath.Join(run, "podman", "podman.sock"))
	}
	if os.Getuid() == 0 {
		return append(all, "/run/podman/podman.sock")
	}
	return append(all, fmt.Sprintf("/run/user/%d/podman/podman.sock", os.Getuid()))
}

// listens reports whether a process listens at path. systemd also listens for a
// unit that it starts later.
func listens(path string) bool {
	if info, err := os.Stat(path); err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// start starts a server. The server belongs to our process group and gets a
// signal when we end, so that it always ends with us.
func (s *servers) start() (string, error) {
	binary, err := exec.LookPath("podman")
	if err != nil {
		return "", fmt.Errorf("podman is not installed, and no server of it listens at %v: install it (apt-get install podman uidmap slirp4netns), or choose environment \"local\"", candidates())
	}
	dir, err := engine.Place()
	if err != nil {
		return "", err
	}
	socket := filepath.Join(dir, fmt.Sprintf("podman-%d.sock", os.Getpid()))
	args, env := []string{}, environ
	if s.private != nil {
		limited, cancel := context.WithTimeout(context.Background(), startTime)
		defer cancel()
		if err = s.private.make(limited); err != nil {
			return "", fmt.Errorf("storage of this job: %w", err)
		}
		args, env = s.private.own(), s.private.environ
		socket = s.private.socket()
	}
	_ = os.Remove(socket) // of an earlier process with our number, or of this job
	cmd := exec.CommandContext(context.Background(), binary, append(args, "system", "service", "--time=0", "unix://"+socket)...)
	if cmd.Env, err = env(); err != nil {
		return "", err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	s.stderr = output.NewTail(2 << 10)
	cmd.Stderr, cmd.Dir = s.stderr, "/"
	// A rootless podman is two processes, and the second, which serves, shares
	// stderr. If the first is killed, Wait must not wait for the second.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start podman system service: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its output is in stderr
		_ = os.Remove(socket)
		close(ended)
	}()
	deadline := time.After(startTime)
	for !listens(socket) {
		select {
		case <-ended:
			return "", fmt.Errorf("podman system service ended at once (%s): %s%s", cmd.ProcessState, strings.TrimSpace(s.stderr.String()), inNamespace())
		case <-deadline:
			_ = cmd.Process.Kill()
			return "", fmt.Errorf("podman system service does not listen after %v: %s", startTime, strings.TrimSpace(s.stderr.String()))
		case <-time.After(10 * time.Millisecond):
		}
	}
	s.own, s.ended = cmd, ended
	return "unix://" + socket, nil
}

// inNamespace returns a hint for root of a user namespace, whom podman takes
// for the machine's root.
func inNamespace() string {
	text, err := os.ReadFile("/proc/self/uid_map")
	if f := bytes.Fields(text); err != nil || os.Getuid() != 0 || len(f) == 3 && string(f[2]) == "4294967295" {
		return ""
	}
	return ": berth is root of a user namespace, who may not use the folders of the machine's root: start it outside of the namespace, or choose environment \"local\""
}

// environ returns only the part of our environment that podman needs, because
// certain images could read other variables of a server (CVE-2026-57231).
func environ() (env []string, err error) {
	env = named()
	run, err := runtimedir.For(os.Getuid()).Session()
	if err != nil { // a job on a cluster has none, or one that is gone; after su it belongs to another user
		// All processes of this user must use the same folder, because podman
		// stores it in its database.
		dir, placeErr := engine.Lasting()
		if placeErr != nil {
			return nil, placeErr
		}
		run = filepath.Join(dir, "run")
		if err = runtimedir.Make(run); err != nil {
			return nil, err
		}
	}
	return append(env, "XDG_RUNTIME_DIR="+run), nil
}

// named are variables of our environment that podman gets.
func named() (env []string) {
	for _, name := range []string{"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"} {
		v, ok := os.LookupEnv(name)
		if name == "TMPDIR" && ok {
			info, statErr := os.Stat(v)
			ok = statErr == nil && info.IsDir() // podman fails if the folder does not exist
		}
		if ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}
