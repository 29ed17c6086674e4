package trial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/berth-eval/berth/core/record"
	inside "github.com/berth-eval/berth/core/sandbox"
	"github.com/berth-eval/berth/core/trial/bound"
	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/task"
)

// world is the sandbox of an attempt with what the core keeps about it.
type world struct {
	*inside.Sandbox
	folder *inside.Folder
	shell  *sandbox.Client // the core's own: root, in dir, with env
	made   environment.Sandbox
	dir    string            // where commands start
	env    map[string]string // of every command
	known  []inside.Key      // processes that ran before the agent came
	frozen time.Time         // since when; zero: it runs
}

// coreSession is the name of the core's own session in a sandbox.
const coreSession = "core"

// newWorld makes the control folder and the sandbox, and connects the two. a.w
// is set as soon as there is something to destroy.
func (a *attempt) newWorld(ctx context.Context) error {
	folder, err := inside.NewFolder(filepath.Join(a.in.Runtime, "b"), a.in.Sandboxd)
	if err != nil {
		return by(record.ByCore, err)
	}
	a.spec.Control = folder.Path
	if a.spec.Scratch, err = a.folder("env"); err == nil {
		a.spec.Files, err = a.environmentFiles()
	}
	if err != nil {
		return by(record.ByCore, errors.Join(err, folder.Close()))
	}
	made, err := call(ctx, record.ByEnvironment, "create sandbox", a.startTime(), func(ctx context.Context) (environment.Sandbox, error) {
		return a.env.Create(ctx, a.spec)
	})
	if err != nil {
		return errors.Join(err, folder.Close())
	}
	w := &world{
		folder: folder, made: made,
		dir: orElse(orElse(a.spec.Workdir, made.Image.Workdir), "/"), env: merge(made.Image.Env, a.taskEnv),
	}
	a.w = w
	w.Sandbox, err = call(ctx, record.ByEnvironment, "connect sandbox", bound.Connect, func(ctx context.Context) (*inside.Sandbox, error) {
		if made.Stream != "" {
			return nil, fmt.Errorf("%w: a sandbox behind a byte stream", environment.ErrUnsupported)
		}
		return inside.Connect(ctx, folder, made.PID, bound.Lease)
	})
	if err != nil {
		return err
	}
	w.shell, err = w.Shell(ctx, inside.Session{ID: coreSession, Dir: w.dir, Env: list(w.env)})
	return err
}

// environmentFiles is a folder with the resources that the environment plugin
// itself reads; empty when there are none.
func (a *attempt) environmentFiles() (string, error) {
	names := a.task.Environment.Files
	if len(names) == 0 {
		return "", nil
	}
	dir := filepath.Join(a.in.Runtime, "files")
	return dir, views.Resources(dir, a.task, names)
}

// gone says whether the sandbox has ended.
func (w *world) gone() bool { return w.Sandbox == nil || w.Err() != nil }

// ctx is parent, but it ends with the sandbox. end frees it.
func (w *world) ctx(parent context.Context) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(parent)
	lost := w.Lost()
	go func() {
		select {
		case <-lost:
			cancel(errLost)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// close ends the sandbox's connections; PID 1 ends with them.
func (w *world) shutdown() error {
	var err error
	if w.shell != nil {
		err = w.shell.Close()
	}
	if w.Sandbox != nil {
		err = errors.Join(err, w.Close())
	}
	return errors.Join(err, w.folder.Close())
}

// destroy removes the sandbox. What cannot be removed is a finding: it does not
// spoil a result that stands already.
func (a *attempt) destroy(ctx context.Context) {
	if a.w == nil {
		return
	}
	ctx, cancel := limited(context.WithoutCancel(ctx), "destroy", bound.Destroy)
	defer cancel()
	p := record.Phase{Name: record.PhaseDestroy, Who: record.ByEnvironment}
	at, err := a.phase(ctx, p, bound.Destroy, func(ctx context.Context) error {
		errs := []error{a.closeSession(ctx)}
		remains, err := a.remove(ctx, a.w.made.ID)
		errs = append(errs, err)
		if err == nil {
			a.res.Remains = &remains
			for _, f := range remains.Findings {
				a.scribe.note(p, "remains", "%s", f)
			}
		}
		return errors.Join(append(errs, a.w.shutdown())...)
	})
	if err != nil {
		a.scribe.note(at, "cleanup", "%s", err)
	}
	a.w = nil
}

// remove destroys a sandbox, with a new process of the plugin if that has died.
func (a *attempt) remove(ctx context.Context, id string) (environment.Remains, error) {
	for tries := 0; ; tries++ {
		remains, err := call(ctx, record.ByEnvironment, "destroy sandbox", bound.Destroy, func(ctx context.Context) (environment.Remains, error) {
			return a.env.Destroy(ctx, id)
		})
		if !errors.Is(err, ErrPluginGone) || tries > 0 {
			return remains, err
		}
		env, _, again := a.in.Plugins.Environment(ctx, a.in.Cell.Environment.Plugin)
		if again != nil {
			return remains, errors.Join(err, again)
		}
		a.env = env
	}
}

// folders makes folders in the sandbox that anybody may write.
func (w *world) folders(ctx context.Context, paths ...string) error {
	for _, p := range paths {
		if p == "" {
			continue
		}
		if err := w.shell.Upload(ctx, p, bytes.NewReader(views.EmptyFolder(0o777)), sandbox.UploadOptions{}); err != nil {
			return fmt.Errorf("make %s: %w", p, err)
		}
	}
	return nil
}

// absolute is a path in the sandbox.
func (w *world) absolute(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(w.dir, p)
}

// put places one resource, which user owns then (empty: root), and returns the
// sums of its files.
func (w *world) put(ctx context.Context, t *task.Task, res *task.Resource, user string) (views.Sums, error) {
	place := w.absolute(res.Place)
	r, out := io.Pipe()
	var sums views.Sums
	var packed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		sums, packed = views.Archive(out, t, res, place)
		_ = out.CloseWithError(packed)
	}()
	err := w.shell.Upload(ctx, views.Target(res, place), r, sandbox.UploadOptions{User: user})
	_ = r.CloseWithError(errors.New("the upload has ended"))
	<-done
	if packed != nil && err != nil && errors.Is(err, packed) {
		return nil, by(record.ByTask, packed)
	}
	return sums, err
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - bound.OutputTail; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// command runs a command of the task and makes an error of a bad end.
func (w *world) command(ctx context.Context, c *task.Command, env map[string]string, limit time.Duration) error {
	if c.Service != "" {
		return by(record.ByConfig, fmt.Errorf("command in container %q: tasks of several containers are not supported yet", c.Service))
	}
	out := &tail{}
	r, err := w.shell.Exec(ctx, sandbox.Command{
		Argv: c.Argv, Dir: c.Dir, User: c.User, Env: list(env), Timeout: limit, Stdout: out, Stderr: out,
	})
	switch {
	case err != nil:
		return err
	case r.TimedOut:
		return fmt.Errorf("%q took longer than %s: %s", c.Argv, limit, out)
	case !r.OK():
		return fmt.Errorf("%q ended with exit code %d: %s", c.Argv, r.ExitCode, out)
	}
	return nil
}

// list is variables as a command takes them.
func list(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}

// healthy waits for a healthcheck: failures within its start period do not
// count, after it Retries in a row are one too many. A probe that runs out of
// its time is a failure like any other.
func (w *world) healthy(ctx context.Context, h *task.Healthcheck) error {
	begin := time.Now()
	for failures := 0; ; {
		out := &tail{}
		r, err := w.shell.Exec(ctx, sandbox.Command{Argv: h.Argv, User: h.User, Timeout: h.Timeout.Std(), Stdout: out, Stderr: out})
		switch {
		case err != nil:
			return err
		case r.OK():
			return nil
		}
		pause := h.Interval.Std()
		if time.Since(begin) < h.StartPeriod.Std() {
			pause = orElse(h.StartInterval.Std(), pause)
		} else if failures++; failures >= max(h.Retries, 1) {
			return fmt.Errorf("%q failed %d times in a row, last with exit code %d: %s", h.Argv, failures, r.ExitCode, out)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
