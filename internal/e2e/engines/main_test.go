package engines

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// patience is the longest time that these tests wait for anything.
const patience = 3 * time.Minute // it only ends a test that hangs: engines are slow after a crash

// TestMain sets these for all tests.
var (
	tree   string // the root of the module
	top    string // a short folder: sockets lie below it
	bin    string // in it: berth, berth-sandboxd, plugins/
	places atomic.Int64
)

func TestMain(m *testing.M) {
	os.Exit(testlevel.Main("test-engines", func() int {
		if err := build(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(top)
		return m.Run()
	}))
}

// build prepares the programs, once for all tests.
func build() (err error) {
	if tree, err = filepath.Abs("../../.."); err != nil {
		return err
	}
	if top, err = os.MkdirTemp(testlevel.Tmp(), "bg"); err != nil {
		return err
	}
	bin = filepath.Join(top, "bin")
	err = e2etest.Build(tree, bin, "./agents/nop", "./agents/oracle", "./agents/terminus", "./agents/minisweagent", "./agents/persona", "./agents/random", "./environments/local", "./environments/docker", "./environments/podman", "./environments/browser", "./verifiers/script", "./verifiers/compare", "./verifiers/supervisor")
	if err != nil {
		return errors.Join(err, os.RemoveAll(top))
	}
	return nil
}

// place is a working folder with its own environment variables.
type place struct {
	test   *testing.T
	dir    string
	env    []string
	before []string // mounts
}

func newPlace(t *testing.T, env ...string) *place {
	t.Helper()
	e2etest.Watch(t, tree)
	p := &place{test: t, dir: filepath.Join(top, strconv.FormatInt(places.Add(1), 10))}
	run, temp, cache := filepath.Join(p.dir, "r"), filepath.Join(p.dir, "t"), filepath.Join(top, "cache")
	for _, d := range []string{p.dir, run, temp, cache} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "XDG_RUNTIME_DIR=" + run, "XDG_CACHE_HOME=" + cache, "TMPDIR=" + temp, "LANG=C.UTF-8", "NO_COLOR=1",
	}, env...)
	p.before = p.mounts()
	return p
}

// write writes a file into the place.
func (p *place) write(name, text string) {
	p.test.Helper()
	path := filepath.Join(p.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		p.test.Fatal(err)
	}
}

// read returns a file of the place.
func (p *place) read(name string) string {
	p.test.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		p.test.Fatal(err)
	}
	return string(text)
}

// task writes a task that starts from the engine's base image.
func (p *place) task(name, more, solve, test string) {
	p.test.Helper()
	(&e2etest.Task{Name: "engines/" + name, Image: base, More: more, Solve: solve, Test: test}).Write(p.test, filepath.Join(p.dir, "tasks"))
}

// experiment writes an experiment of the oracle over ./tasks.
func (p *place) experiment(plugin, config, more string) {
	p.test.Helper()
	p.write("berth.hcl", e2etest.Experiment(plugin, config, "matrix {\n    agent = [agent.oracle]\n  }\n  "+more, ""))
}

// session is a berth process that is running.
type session struct {
	*exec.Cmd

	out, err bytes.Buffer
	ended    chan struct{}
}

// start starts berth.
func (p *place) start(args ...string) *session {
	p.test.Helper()
	s := &session{Cmd: exec.CommandContext(p.test.Context(), filepath.Join(bin, "berth"), args...), ended: make(chan struct{})}
	s.Dir, s.Env, s.Stdout, s.Stderr, s.WaitDelay = p.dir, p.env, &s.out, &s.err, 10*time.Second
	if err := s.Start(); err != nil {
		p.test.Fatal(err)
	}
	go func() { defer close(s.ended); _ = s.Wait() }()
	return s
}

// hasEnded reports whether the process has ended.
func (s *session) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// end waits until berth has ended and returns its exit code, or -1 if a signal
// ended it.
func (p *place) end(s *session) int {
	p.test.Helper()
	return p.endWithin(s, patience)
}

// endWithin is end for a run that may take longer than patience.
func (p *place) endWithin(s *session, limit time.Duration) int {
	p.test.Helper()
	select {
	case <-s.ended:
	case <-time.After(limit):
		_ = s.Process.Kill()
		p.test.Fatalf("%q does not end", s.Args)
	}
	e2etest.Audited(p.test, s.Cmd, s.ProcessState.ExitCode())
	return s.ProcessState.ExitCode()
}

// berth runs a command that must end with code, and returns its output.
func (p *place) berth(code int, args ...string) string {
	p.test.Helper()
	s := p.start(args...)
	if got := p.end(s); got != code {
		p.test.Fatalf("berth %q: exit code %d, want %d\n%s\n%s", args, got, code, s.out.String(), s.err.String())
	}
	return s.out.String()
}

// show returns the output of `berth show last --json`.
func (p *place) show() *output.ShowRun {
	p.test.Helper()
	var s output.ShowRun
	if err := json.Unmarshal([]byte(p.berth(0, "show", "last", "--json")), &s); err != nil {
		p.test.Fatal(err)
	}
	return &s
}

// processes returns the processes whose command line contains all parts.
func processes(parts ...string) (pids []int) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil
	}
	for _, f := range all {
		text, err := os.ReadFile(f)
		line := strings.ReplaceAll(string(text), "\x00", " ")
		if err != nil || slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
