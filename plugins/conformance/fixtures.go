package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// TempDir makes an empty folder that is removed after the clause. Its path is
// short enough for sockets in it.
func (t *T) TempDir() string {
	dir, err := os.MkdirTemp("", "bk")
	t.Must("make a folder for the clause", err)
	t.Cleanup(func(context.Context) { _ = os.RemoveAll(dir) })
	return dir
}

// Write writes files below dir, by slash-separated name. An existing file keeps its
// mode.
func (t *T) Write(dir string, files map[string]string) {
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		t.Must("lay out files", errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)))
	}
}

// Copy copies a folder, links as links, to a new one of the same name.
func (t *T) Copy(dir string) string {
	to := filepath.Join(t.TempDir(), filepath.Base(dir))
	t.Must("copy "+dir, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// Tree lists what is below dir, with mode, time of change and size, and the
// content of regular files, so that any change is seen.
func (t *T) Tree(dir string) string {
	var b strings.Builder
	t.Must("list "+dir, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&b, strings.TrimPrefix(path, dir), info.Mode(), info.ModTime())
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			fmt.Fprintf(&b, "%d bytes: %.2000q\n", len(text), text)
			return err
		}
		return nil
	}))
	return b.String()
}

// Unchanged fails the clause if do changes what is below dir.
func (t *T) Unchanged(dir string, do func()) {
	before := t.Tree(dir)
	do()
	if after := t.Tree(dir); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
}

// Ends fails the clause if f takes longer than d on an idle machine, and returns
// then. f must not end the clause.
func (t *T) Ends(what string, d time.Duration, f func()) {
	if !inTime(Patience(d), f) {
		t.Errorf("%s: still working after %v", what, d)
	}
}

// Eventually waits until f is true, five seconds on an idle machine. If that does
// not come about, the clause fails before its time is used up: the plugin does
// not hang, and the clauses after it can be tried.
func (t *T) Eventually(what string, f func() bool) {
	wait := Patience(5 * time.Second)
	if end, ok := t.ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)*4/5)
	}
	late := time.After(wait)
	for !f() {
		select {
		case <-late:
			t.Fatalf("not so in time: %s", what)
		case <-t.ctx.Done():
			t.Fatalf("not so in time: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Load describes the processes of a plugin: itself and those that it started,
// with their descendants.
type Load struct {
	Processes int
	// Running means that one of their threads is runnable, whether or not it
	// has a processor.
	Running bool
}

// A plugin is checked several times. It is at rest if it has nothing to do in
// most of the checks.
const (
	looks    = 10
	lookTime = 25 * time.Millisecond
)

// Calms calls do and fails the clause unless the plugin comes to rest within d
// after it on an idle machine: it has at most as many processes as before, and
// nothing to do. A cancelled call returns to the caller at once, whatever the
// plugin does, so its return does not show that the plugin has stopped. If load
// is nil, the plugin runs in the process of the kit, and its rest is not seen.
func (t *T) Calms(load func() Load, d time.Duration, do func()) {
	if load == nil {
		do()
		return
	}
	before := load()
	do()
	for deadline := time.Now().Add(Patience(d)); ; {
		var last Load
		busy := 0
		for range looks {
			select {
			case <-time.After(lookTime):
			case <-t.ctx.Done():
				return
			}
			if last = load(); last.Running || last.Processes > before.Processes {
				busy++
			}
		}
		if busy < looks/2 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%v after its caller has given up, the plugin still works: %d processes, %d before, and %d of %d times it had something to do",
				d, last.Processes, before.Processes, busy, looks)
			return
		}
	}
}

// mostPatience is the largest factor by which a busy machine extends a timeout.
const mostPatience = 20

// PatienceVariable is an environment variable with the factor that Patience
// uses instead of the load average, such as 4 in a container on a busy machine.
const PatienceVariable = "BERTH_KIT_PATIENCE"

// Patience scales a timeout for a busy machine. d is the timeout on an idle one.
// If the load average is above the number of processors, the result grows with
// it, up to twenty times d. A positive number in PatienceVariable, up to twenty,
// is used as the factor whatever the load.
func Patience(d time.Duration) time.Duration {
	if factor, err := strconv.ParseFloat(os.Getenv(PatienceVariable), 64); err == nil && factor > 0 {
		return time.Duration(float64(d) * min(factor, mostPatience))
	}
	return loaded(d)
}

// Delay scales a wait that a plugin needs on an idle machine for a busy one, as
// Patience does. A factor in PatienceVariable does not make it shorter.
func Delay(d time.Duration) time.Duration { return max(loaded(d), Patience(d)) }

func loaded(d time.Duration) time.Duration {
	text, _ := os.ReadFile("/proc/loadavg") // Linux only
	return patience(d, string(text), runtime.NumCPU())
}

func patience(d time.Duration, loadavg string, processors int) time.Duration {
	last, _, _ := strings.Cut(loadavg, " ") // over the last minute
	load, err := strconv.ParseFloat(last, 64)
	if err != nil || !(load > float64(processors)) {
		return d
	}
	return time.Duration(float64(d) * min(load/float64(processors), mostPatience))
}
