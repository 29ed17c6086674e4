package faults

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins"
)

// stranger is an ordinary user that tests of root become. Nobody has this id,
// and it has no subordinate ids.
const stranger = 54322

var places atomic.Int64

// place holds the folders of a user for one test: those in which berth writes,
// beside its run folder. All of them are empty at first.
type place struct {
	dir  string // the working directory; runs go to runs/ in it
	uid  int
	env  []string
	test *testing.T
}

func newPlace(t *testing.T) *place {
	t.Helper()
	return placeOf(t, os.Getuid())
}

func placeOf(t *testing.T, uid int) *place {
	t.Helper()
	e2etest.Watch(t, tree())
	e2etest.Must(t, needPrograms())
	p := &place{dir: filepath.Join(top, strconv.FormatInt(places.Add(1), 10)), uid: uid, test: t}
	cache := filepath.Join(top, "cache-"+strconv.Itoa(uid)) // copies of the host are made once
	for _, d := range []string{p.dir, cache, p.runtime(), p.temp(), filepath.Join(p.dir, "home")} {
		e2etest.Must(t, os.MkdirAll(d, 0o700))
		e2etest.Must(t, os.Chown(d, uid, -1))
	}
	p.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(p.dir, "home"), "XDG_RUNTIME_DIR=" + p.runtime(),
		"XDG_CACHE_HOME=" + cache, "TMPDIR=" + p.temp(), "LANG=C.UTF-8", "GOTRACEBACK=all",
	}
	return p
}

func (p *place) runtime() string { return filepath.Join(p.dir, "r") }
func (p *place) temp() string    { return filepath.Join(p.dir, "t") }

// write puts a file into the place.
func (p *place) write(name, text string) string {
	p.test.Helper()
	path := filepath.Join(p.dir, name)
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)) //nolint:gosec // another user reads it
	e2etest.Must(p.test, err)
	return path
}

// task writes a task whose environment is the host's base.
func (p *place) task(name, more, solve, test string) {
	p.test.Helper()
	(&e2etest.Task{Name: "e2e/" + name, More: more, Solve: solve, Test: test}).Write(p.test, filepath.Join(p.dir, "tasks"))
}

// experiment writes berth.hcl. body is added to its experiment block, and more
// to the end of the file.
func (p *place) experiment(body, more string) {
	p.test.Helper()
	p.write("berth.hcl", e2etest.Experiment("local", "", body, more))
}

// session is a berth process that is running.
type session struct {
	place    *place
	pid      int
	ended    chan struct{} // closed when result is there
	result   result
	out, err string    // files
	audited  *exec.Cmd // whose run is audited when it has ended; nil: none
}

// result says how berth ended, and what it left.
type result struct {
	ending

	stdout, stderr string
}

// start starts berth under a shepherd, with env added to the variables of the
// place.
func (p *place) start(env []string, args ...string) *session {
	p.test.Helper()
	s := p.shepherd(nil, env, append([]string{filepath.Join(bin, "berth")}, args...)...)
	if len(env) == 0 { // such as a disk of its own, which nobody else sees
		s.audited = &exec.Cmd{Path: filepath.Join(bin, "berth"), Args: append([]string{"berth"}, args...), Dir: p.dir, Env: p.env}
	}
	return s
}

// shepherd starts a command. change may change how its shepherd is started.
func (p *place) shepherd(change func(*exec.Cmd), env []string, argv ...string) *session {
	t := p.test
	t.Helper()
	s := &session{place: p, ended: make(chan struct{})}
	cmd := exec.CommandContext(t.Context(), os.Args[0], argv...) // whoever is left at the end of the test dies with its shepherd
	cmd.Dir = p.dir
	cmd.Env = append(append(append([]string{}, p.env...), roleEnv+"=shepherd"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if p.uid != os.Getuid() {
		// The test binary is in a folder of this user. The shepherd executes
		// the open file.
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.uid), NoSetGroups: false} //nolint:gosec // small numbers
		cmd.Path = openCopy()
	}
	if change != nil {
		change(cmd)
	}
	stdout, stderr := p.output(&s.out), p.output(&s.err)
	defer stdout.Close()
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	tell, told, err := os.Pipe()
	e2etest.Must(t, err)
	cmd.ExtraFiles = []*os.File{told}
	err = cmd.Start()
	_ = told.Close()
	e2etest.Must(t, err)
	r := bufio.NewReader(tell)
	line, err := r.ReadString('\n')
	if err == nil {
		s.pid, err = strconv.Atoi(strings.TrimSpace(line))
	}
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("%q: no process: %v: %s", argv, err, read(s.err))
	}
	go func() {
		defer close(s.ended)
		defer tell.Close()
		if decodeErr := json.NewDecoder(r).Decode(&s.result.ending); decodeErr != nil {
			s.result.Left = append(s.result.Left, "the shepherd did not say: "+decodeErr.Error())
		}
		_ = cmd.Wait()
		s.result.stdout, s.result.stderr = read(s.out), read(s.err)
	}()
	return s
}

// openCopy returns the test binary in a folder in which everybody may execute
// it.
var openCopy = sync.OnceValue(func() string {
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		panic(err)
	}
	path := filepath.Join(top, "shepherd")
	if err = errors.Join(os.WriteFile(path, b, 0o755), os.Chmod(path, 0o755)); err != nil { //nolint:gosec // to be executed
		panic(err)
	}
	return path
})

func (p *place) output(name *string) *os.File {
	p.test.Helper()
	f, err := os.CreateTemp(p.dir, "out-*")
	e2etest.Must(p.test, err)
	*name = f.Name()
	return f
}

// berth runs a command until it has ended.
func (p *place) berth(args ...string) result {
	p.test.Helper()
	return p.start(nil, args...).wait()
}

// wait waits until berth and all processes that it started have ended.
func (s *session) wait() result {
	t := s.place.test
	t.Helper()
	select {
	case <-s.ended:
	case <-time.After(4 * time.Minute):
		t.Fatalf("berth %d does not end; stderr:\n%s", s.pid, read(s.err))
	}
	for _, l := range s.result.Left {
		t.Errorf("left %s after berth ended: %s", patience, l)
	}
	if s.audited != nil {
		e2etest.Audited(t, s.audited, s.result.Code)
	}
	return s.result
}

// want ends the test if berth did not end with code.
func (r result) want(t *testing.T, code int) result {
	t.Helper()
	if r.Code != code {
		t.Fatalf("exit code %d (signal %v), want %d\nstdout:\n%s\nstderr:\n%s", r.Code, r.Signal, code, r.stdout, r.stderr)
	}
	return r
}

func (s *session) signal(sig syscall.Signal) {
	s.place.test.Helper()
	if err := syscall.Kill(s.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		s.place.test.Fatal(err)
	}
}

// child returns the process of a plugin of this berth, or 0 if there is none.
func (s *session) child(plugin string) int {
	for _, pid := range descendants(s.pid) {
		if parent(pid) == s.pid && filepath.Base(strings.Fields(cmdline(pid) + " ?")[0]) == plugins.ProgramPrefix+plugin {
			return pid
		}
	}
	return 0
}

// poll waits until done returns true.
func poll(t *testing.T, what string, s *session, done func() bool) {
	t.Helper()
	testlevel.Eventually(t, what, func() bool {
		if done() {
			return true
		}
		select {
		case <-s.ended:
			if done() {
				return true
			}
			t.Fatalf("berth ended (%d) before %s\nstderr:\n%s", s.result.Code, what, s.result.stderr)
		default:
		}
		return false
	})
}

func read(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// clean checks that nothing of finished runs is left on the machine after
// `berth gc`.
func (p *place) clean() {
	t := p.test
	t.Helper()
	p.berth("gc").want(t, 0)
	for _, dir := range []string{filepath.Join(p.runtime(), "berth", "p"), p.temp(), filepath.Join(p.runtime(), "berth", "local-1", "sandboxes")} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		for _, e := range entries {
			t.Errorf("left in %s: %s", dir, e.Name())
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, p.dir+"/") {
			t.Errorf("left a mount: %s", line)
		}
	}
}
