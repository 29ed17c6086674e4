// Package sandbox represents one sandbox, from its creation and connection,
// through its use by the phases of an attempt, to its end. An attempt may have
// several. A task with several containers has one for each sidecar, which are
// started, probed and waited for in the order of the task.
//
// It must not know why a phase does something, and must not decide what a
// failure means. It passes the output of a sandbox on unchanged; that output is
// untrusted.
package sandbox

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/archive"
	"github.com/berth-eval/berth/plugins/sandbox/egress"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/task"
)

// ErrLost is the cause with which everything that needs the sandbox ends when
// the sandbox is gone.
var ErrLost = errors.New("the sandbox is gone")

// Sandbox is one sandbox with the core's data about it, and with a sandbox for
// each of its sidecars. It is made in two steps, because a sandbox that never
// connected must be destroyed, too: Create first, then Connect. Not safe for
// concurrent use, except for Lost.
type Sandbox struct {
	*host.Sandbox // nil until Connect

	Made     environment.Sandbox
	Asked    time.Time         // before the environment was asked for it
	Process  int               // process of the environment that made it; 0: not known
	Dir      string            // where commands start
	Env      map[string]string // of every command
	Known    []host.Key        // processes that ran before the agent started: the task's, and its surface's
	User     string            // user of commands that name no user; empty: root
	Sidecars []*Sidecar        // in the order of the task; they end with it

	served bool // including a service

	task   *task.Environment // dependencies; nil in a sidecar
	folder *host.Folder      // nil before Create made it
	core   *sandbox.Client   // the core's own session: root, in Dir, with Env
	way    *egress.Proxy     // of all containers; nil: the network is always none or public
	direct []string          // names and addresses that are reached without it
	net    *host.Network     // of its containers; nil: there is one, or it is a sidecar's
	joined *host.Joining     // nil without net of the whole
	frozen time.Time         // start of the freeze; zero: it runs
}

// coreSession is the name of the core's own session in a sandbox.
const coreSession = "core"

// Core returns the core's own session in the sandbox.
func (w *Sandbox) Core() sandbox.Shell { return w.core }

// Gone reports whether the sandbox has ended.
func (w *Sandbox) Gone() bool { return w.Sandbox == nil || w.Err() != nil }

// Able reports whether the sandbox can still start a command, by starting one.
// The program is our own, which every sandbox has.
func (w *Sandbox) Able(ctx context.Context) bool {
	if w.Gone() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.Control)
	defer cancel()
	_, err := w.core.Exec(ctx, sandbox.Command{Argv: []string{"/berth/sandboxd"}, Timeout: limits.Control / 2})
	return err == nil || !errors.Is(err, sandbox.ErrNoRoom) && !errors.Is(err, sandbox.ErrGone) && ctx.Err() == nil
}

// Ctx returns a context that ends with parent, or with the sandbox, with the
// cause ErrLost. end frees it.
func (w *Sandbox) Ctx(parent context.Context) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(parent)
	lost := w.Lost()
	go func() {
		select {
		case <-lost:
			cancel(ErrLost)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Shutdown closes the sandbox's connections, which ends its PID 1, and removes
// the control folder. Idempotent.
func (w *Sandbox) Shutdown() error {
	var err error
	if w.way != nil {
		w.way.Close()
	}
	for _, side := range w.Sidecars {
		err = errors.Join(err, side.Shutdown())
	}
	if w.core != nil {
		err = errors.Join(err, w.core.Close())
	}
	if w.Sandbox != nil {
		err = errors.Join(err, w.Close())
	}
	if w.net != nil {
		w.net.Close()
	}
	if w.folder != nil {
		err = errors.Join(err, w.folder.Close())
	}
	return err
}

// FilesError means that files of the host could not be read.
type FilesError struct{ Err error }

// Error describes the cause.
func (e *FilesError) Error() string { return "files on this host: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *FilesError) Unwrap() error { return e.Err }

// Folders makes folders in the sandbox that every user may write to.
func (w *Sandbox) Folders(ctx context.Context, paths ...string) error {
	below := map[string][]string{} // names by parent folder, for one call each
	for _, p := range paths {
		if p = path.Clean(p); p != "." && p != "/" {
			below[path.Dir(p)] = append(below[path.Dir(p)], path.Base(p))
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(below)) {
		b, err := views.EmptyFolders(0o777, below[dir]...)
		if err == nil {
			err = w.core.Upload(ctx, dir, bytes.NewReader(b), sandbox.UploadOptions{})
		}
		if err != nil {
			return fmt.Errorf("make %s in %s: %w", strings.Join(below[dir], ", "), dir, err)
		}
	}
	return nil
}

// Absolute returns an absolute path in the sandbox.
func (w *Sandbox) Absolute(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(w.Dir, p)
}

// Put places one resource, which then belongs to user (empty: root), and
// returns the Sums of its files.
func (w *Sandbox) Put(ctx context.Context, t *task.Task, res *task.Resource, user string) (views.Sums, error) {
	place := w.Absolute(res.Place)
	var sums views.Sums
	err := w.upload(ctx, views.Target(res, place), sandbox.UploadOptions{User: user}, func(out io.Writer) (err error) {
		sums, err = views.Archive(out, t, res, place)
		return err
	})
	return sums, err
}

// upload extracts the archive that pack writes into a folder. An error of pack itself
// is a FilesError.
func (w *Sandbox) upload(ctx context.Context, dir string, o sandbox.UploadOptions, pack func(io.Writer) error) error {
	r, out := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(out)
		_ = out.CloseWithError(err)
		packed <- err
	}()
	err := w.core.Upload(ctx, dir, r, o)
	_ = r.CloseWithError(errors.New("the upload has ended"))
	if failed := <-packed; failed != nil && errors.Is(err, failed) {
		return &FilesError{failed}
	}
	return err
}

// PutFiles copies a file or folder of the host, which was collected from
// another sandbox, to an absolute path. It belongs to root.
func (w *Sandbox) PutFiles(ctx context.Context, from, place string) error {
	o := sandbox.UploadOptions{Limits: archive.Limits{Bytes: limits.ArtifactBytes, Entries: limits.ArtifactEntries}}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return w.core.UploadFolder(ctx, from, place, o)
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return w.upload(ctx, path.Dir(place), o, func(out io.Writer) error {
		t := tar.NewWriter(out)
		err := t.WriteHeader(&tar.Header{Name: path.Base(place), Mode: int64(info.Mode().Perm()), Size: info.Size(), Format: tar.FormatPAX})
		if err == nil {
			_, err = io.Copy(t, in)
		}
		return errors.Join(err, t.Close())
	})
}

// HasUser fails with sandbox.ErrNotFound if the sandbox has no user with that
// name.
func (w *Sandbox) HasUser(ctx context.Context, user string) error {
	_, err := w.Fresh(ctx, user, 0) // makes nothing, but looks the user up
	return err
}

// StartService starts the program of an image or a service of the task.
func (w *Sandbox) StartService(ctx context.Context, s host.Service) (pid int, err error) {
	w.served = true
	return w.Sandbox.StartService(ctx, s)
}

// Served reports whether a service was ever started.
func (w *Sandbox) Served() bool { return w.served }

// Command runs a command of the task and returns an error if it fails.
func (w *Sandbox) Command(ctx context.Context, c *task.Command, env map[string]string, limit time.Duration) error {
	w, err := w.in(c.Service)
	if err != nil {
		return err
	}
	out := output.NewTail(limits.OutputTail)
	r, err := w.core.Exec(ctx, sandbox.Command{
		Argv: c.Argv, Dir: c.Dir, User: cmp.Or(c.User, w.User), Env: List(env), Timeout: limit, Stdout: out, Stderr: out,
	})
	switch {
	case err != nil:
		return err
	case r.TimedOut:
		return fmt.Errorf("%w: %q: %s", limits.Deadline{What: "it was", Limit: limit, Setting: cmp.Or(c.TimeKey, "the default")}, c.Argv, out)
	case !r.OK():
		return fmt.Errorf("%q ended with exit code %d: %s", c.Argv, r.ExitCode, out)
	}
	return nil
}

// List returns variables in the form that commands need.
func List(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}

// Healthy waits for a healthcheck to succeed. Failures within its start period
// do not count; after that, it fails after Retries failures in a row. A probe
// that times out is a failure.
func (w *Sandbox) Healthy(ctx context.Context, h *task.Healthcheck) error {
	begin := time.Now()
	for failures := 0; ; {
		out := output.NewTail(limits.OutputTail)
		r, err := w.core.Exec(ctx, sandbox.Command{Argv: h.Argv, User: cmp.Or(h.User, w.User), Timeout: h.Timeout.Std(), Stdout: out, Stderr: out})
		switch {
		case err != nil:
			return err
		case r.OK():
			return nil
		}
		pause := h.Interval.Std()
		if time.Since(begin) < h.StartPeriod.Std() {
			pause = cmp.Or(h.StartInterval.Std(), pause)
		} else if failures++; failures >= max(h.Retries, 1) {
			how := fmt.Sprintf("with exit code %d", r.ExitCode)
			if r.TimedOut {
				how = limits.Deadline{What: "because it was", Limit: h.Timeout.Std(), Setting: cmp.Or(h.TimeKey, "its timeout")}.Error()
			}
			return fmt.Errorf("%q failed %d times in a row, last %s: %s", h.Argv, failures, how, out)
		}
		if err := limits.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// Halt stops everything in the sandbox, until Resume.
func (w *Sandbox) Halt(ctx context.Context) error {
	w.frozen = time.Now() // even if it fails half-way, because then Resume is needed
	if _, err := w.Freeze(ctx); err != nil {
		return err
	}
	return w.sides(func(c *Sidecar) error {
		_, err := c.Freeze(ctx)
		return err
	})
}

// Moved returns what ran in the sandbox although Halt had stopped it, and stops it
// again.
func (w *Sandbox) Moved(ctx context.Context) ([]host.Process, error) {
	if w.frozen.IsZero() || w.Gone() {
		return nil, nil
	}
	f, err := w.Freeze(ctx)
	if err == nil {
		err = w.sides(func(c *Sidecar) error {
			more, failed := c.Freeze(ctx)
			f.Moved = append(f.Moved, more.Moved...)
			return failed
		})
	}
	return f.Moved, err
}

// Stop kills everything in the sandbox but sandboxd, for good. Files can still be
// read.
func (w *Sandbox) Stop(ctx context.Context) error {
	w.frozen = time.Now()
	if _, err := w.Quiesce(ctx); err != nil {
		return err
	}
	return w.sides(func(c *Sidecar) error {
		_, over := c.exit(ctx)
		c.stopped = !over
		_, err := c.Quiesce(ctx)
		return err
	})
}

// Resume resumes it. It continues after a cancel of ctx, but only for a limited
// time.
func (w *Sandbox) Resume(ctx context.Context) error {
	if w.frozen.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.Control)
	defer cancel()
	w.frozen = time.Time{}
	return errors.Join(w.sides(func(c *Sidecar) error { return c.Thaw(ctx) }), w.Thaw(ctx))
}

// Frozen returns when the sandbox was frozen or stopped; zero: it runs.
func (w *Sandbox) Frozen() time.Time { return w.frozen }

// service returns the state of a service; the zero value if it is not known.
func (w *Sandbox) service(ctx context.Context, name string) (s host.ServiceState) {
	if w.Gone() {
		return s
	}
	states, err := w.Services(ctx)
	if i := slices.IndexFunc(states, func(s host.ServiceState) bool { return s.Name == name }); err == nil && i >= 0 {
		s = states[i]
	}
	return s
}

// ServiceOutput returns the end of the output of a service.
func (w *Sandbox) ServiceOutput(ctx context.Context, name string) string {
	said := w.service(ctx, name).Output
	return string(said[max(0, len(said)-limits.OutputTail):])
}

// Sums adds the sums of the regular files below dir.
func (w *Sandbox) Sums(ctx context.Context, dir string, into views.Sums) error {
	r, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := w.core.Download(ctx, dir, out, archive.Limits{Bytes: limits.HashedTests})
		_ = out.CloseWithError(err)
		done <- err
	}()
	t := tar.NewReader(r)
	var err error
	for {
		var h *tar.Header
		if h, err = t.Next(); err != nil {
			break
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		sum := sha256.New()
		if _, err = io.Copy(sum, t); err != nil {
			break
		}
		into[path.Join(dir, h.Name)] = hex.EncodeToString(sum.Sum(nil))
	}
	if errors.Is(err, io.EOF) {
		_, err = io.Copy(io.Discard, r)
	}
	_ = r.CloseWithError(io.ErrClosedPipe)
	return errors.Join(err, <-done)
}

// Remove removes folders of the verifier.
func (w *Sandbox) Remove(ctx context.Context, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	out := output.NewTail(limits.OutputTail)
	r, err := w.core.Exec(ctx, sandbox.Command{
		Argv: append([]string{"rm", "-rf", "--"}, paths...), Timeout: limits.Control, Stdout: out, Stderr: out,
	})
	if err != nil {
		return fmt.Errorf("remove the verifier's files: %w", err)
	}
	for _, p := range paths {
		if _, err := w.core.Lstat(ctx, p); !errors.Is(err, sandbox.ErrNotFound) {
			return fmt.Errorf("remove the verifier's files: %s is still there (exit code %d: %s)", p, r.ExitCode, out)
		}
	}
	return nil
}

// Fetch writes a path of the sandbox as an archive.
func (w *Sandbox) Fetch(ctx context.Context, service, path string, out io.Writer) error {
	w, err := w.in(service)
	if err != nil {
		return err
	}
	return w.core.Download(ctx, path, out, archive.Limits{Bytes: limits.ArtifactBytes, Entries: limits.ArtifactEntries})
}
