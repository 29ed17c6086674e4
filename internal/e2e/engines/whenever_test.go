package engines

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// podmanOfItsOwn starts a Podman server with its own store in dir, for an
// ordinary user, and gives it the base image.
func podmanOfItsOwn(t *testing.T) *server {
	t.Helper()
	if os.Getuid() == 0 {
		t.Skip(rootless)
	}
	binary, err := exec.LookPath("podman")
	if err != nil {
		t.Skip("podman is not installed: run scripts/engines-for-tests as root to have it tried")
	}
	testlevel.Account(t)
	u, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/var/tmp", "be") //nolint:usetesting // short, not on a tmpfs, and not removed as this user
	if err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"containers", "x"} {
		if err = os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	engine := "[engine]\nevents_logger = \"file\"\ncgroup_manager = \"cgroupfs\"\n"
	for name, text := range map[string]string{
		"containers.conf": engine, "storage.conf": fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n", dir+"/root", dir+"/run"),
	} {
		if err = os.WriteFile(filepath.Join(dir, "containers", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &server{machine: machineAt("podman", filepath.Join(dir, "p.sock")), dir: dir}
	s.argv = []string{binary, "system", "service", "--time=0", "unix://" + s.path}
	s.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + u.HomeDir, "XDG_RUNTIME_DIR=" + dir + "/x", "XDG_CONFIG_HOME=" + dir}
	t.Cleanup(func() {
		s.down(t)
		if text, wrong := s.inside("umount -l " + dir + "/root/overlay; rm -rf " + dir + "/root " + dir + "/run"); wrong != nil {
			t.Logf("the store stays: %v %s", wrong, text)
		}
		if text, wrong := os.ReadFile(dir + "/x/libpod/tmp/pause.pid"); wrong == nil {
			if pid, wrong := strconv.Atoi(strings.TrimSpace(string(text))); wrong == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL) // the process that keeps the store's namespaces
			}
		}
		if wrong := os.RemoveAll(dir); wrong != nil {
			t.Errorf("stays: %v", wrong)
		}
	})
	s.up(t)
	s.load(t)
	return s
}

// load gives the engine the base image.
func (s *server) load(t *testing.T) {
	t.Helper()
	image, err := os.Open(archive)
	if err != nil {
		t.Skip("the base image is not there as a file" + e2etest.Help)
	}
	defer image.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://engine/v1.40/images/load?quiet=1", image)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if err := s.get(t.Context(), "/images/"+base+"/json", nil); err != nil {
		testlevel.Cannot(t, "an engine of its own cannot load the base image"+e2etest.Help, fmt.Sprintf("%s, %v", a.Status, err))
	}
}

// inside runs a script in the namespaces that contain the mounts of the engine.
func (s *server) inside(script string) (string, error) {
	argv := []string{"sh", "-c", script}
	if s.plugin == "podman" {
		argv = append([]string{s.argv[0], "unshare"}, argv...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = s.env, "/", time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// holds describes what an engine has: containers, mounts, and processes that
// use its files or are parents of its containers. Notes about a container in
// files of a runtime that was killed are not included.
func (s *server) holds(t *testing.T) (all []string) {
	t.Helper()
	for _, c := range s.everything(t) {
		all = append(all, "container "+c.ID+" "+c.State)
	}
	mounts, err := s.inside("cat /proc/self/mountinfo")
	if err != nil {
		t.Fatalf("mounts: %v %s", err, mounts)
	}
	all = append(all, slices.DeleteFunc(mountsOf(mounts, s.dir), s.forgotten)...)
	roots, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range roots {
		text, err := os.ReadFile(path)
		first, _, _ := strings.Cut(string(text), "\n")
		if err != nil || !strings.Contains(first, s.dir+"/") {
			continue
		}
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		all = append(all, fmt.Sprintf("process %q", strings.ReplaceAll(string(args), "\x00", " ")))
	}
	for _, helper := range []string{"containerd-shim", "conmon", "runc"} {
		for range s.programs(helper) {
			all = append(all, "process "+helper)
		}
	}
	slices.Sort(all)
	return all
}

// forgotten reports whether dockerd itself left a mount that it never looks for
// again and that belongs to no container. There are two cases: a network
// namespace that dockerd's own hook bound after dockerd had given up on the
// container, because runc was killed in between; and the first layer of a
// container that was being created when dockerd was killed.
func (s *server) forgotten(mount string) bool {
	if s.plugin != "docker" {
		return false
	}
	return strings.HasPrefix(mount, "mount net:[") && strings.Contains(mount, s.dir+"/run/x/netns/") ||
		strings.Contains(mount, s.dir+"/data/overlay2/") && strings.HasSuffix(mount, "-init/merged")
}

// programs returns the processes that run on the engine's files and whose
// program name begins with name.
func (s *server) programs(name string) (pids []int) {
	for _, pid := range processes(s.dir + "/") {
		argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if program, _, _ := strings.Cut(string(argv), "\x00"); err == nil && strings.HasPrefix(filepath.Base(program), name) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// everything lists all containers of the engine, including those that are not
// Berth's.
func (s *server) everything(t *testing.T) (all []container) {
	t.Helper()
	if err := s.get(t.Context(), "/containers/json?all=1", &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// mountsOf returns the mounts of a table, without those that are elsewhere.
func mountsOf(table, own string) (all []string) {
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 5 && !elsewhere(f[4], own) {
			all = append(all, "mount "+f[3]+" on "+f[4])
		}
	}
	return all
}

// elsewhere reports whether a mount belongs to an engine that others use, or to
// another test.
func elsewhere(at, own string) bool {
	if at == own || strings.HasPrefix(at, own+"/") {
		return false
	}
	for _, shared := range []string{"/var/lib/berth-engines/", "/run/berth-engines/", "/run/user/", "/run/docker/", "/var/lib/docker/", "/var/tmp/be", "/tmp/"} {
		if strings.HasPrefix(at, shared) {
			return true
		}
	}
	return false
}

// Whichever process is killed, at a random instant, gc restores the state of
// the engine from before the run: the same containers, mounts and processes.
func TestWhateverIsKilledWheneverGCLeavesTheEngineAsItWas(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func(t *testing.T) *server{
		"docker": func(t *testing.T) *server { t.Helper(); return daemon(t, short(t)) },
		"podman": podmanOfItsOwn,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := made(t)
			parent := map[string]string{"docker": "containerd-shim", "podman": "conmon"}[name]
			victims := []string{"berth", "plugin", "server", parent}
			if name == "docker" { // Podman may wait for a runtime that was killed: berth gc says so
				victims = append(victims, "runc")
			}
			if testlevel.All() {
				victims = slices.Repeat(victims, 4)
			}
			for _, victim := range victims {
				after := time.Duration(rand.Int64N(int64(1500 * time.Millisecond))) //nolint:gosec // any instant will do
				t.Logf("%s is killed %v after the plugin has begun", victim, after)
				s.round(t, victim, after)
			}
		})
	}
}

// round is one run in which a victim is killed.
func (s *server) round(t *testing.T, victim string, after time.Duration) {
	t.Helper()
	before := s.holds(t)
	p := newPlace(t, s.machine.env())
	p.task("short", "build_timeout_sec = 30\n", "sleep 0.2; "+solveTiny, testTiny)
	p.experiment(s.plugin, "", "repeat = 12\n  limits {\n    in_flight = 4\n  }\n  retry {\n    max = 1\n    on = [\"plugin_crashed\", \"environment_error\"]\n    wait = \"10ms\"\n  }")
	b := p.start("run", ".", "--no-live")
	testlevel.Eventually(t, "the plugin runs", func() bool { return len(plugins(b, s.plugin)) > 0 || b.hasEnded() })
	time.Sleep(after) // the instant is random: there is nothing to wait for
	switch victim {
	case "berth":
		_ = b.Process.Kill()
	case "plugin":
		for _, pid := range plugins(b, s.plugin) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	case "server":
		s.down(t)
	default:
		for _, pid := range s.programs(victim) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	p.end(b)
	if s.cmd == nil {
		if p.run() != "" && victim == "server" {
			p.end(p.start("gc")) // which cannot do it now, and must not forget it
		}
		s.up(t)
	}
	p.berth(0, "gc")
	var left []string
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) { // an engine that was killed may take more than a minute
		left = slices.DeleteFunc(s.holds(t), func(what string) bool { return slices.Contains(before, what) })
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) || errors.Is(t.Context().Err(), context.Canceled) {
			t.Fatalf("%s was killed after %v; left:\n%s", victim, after, strings.Join(left, "\n"))
		}
	}
	if p.run() != "" {
		p.clean(s.machine)
	}
}
