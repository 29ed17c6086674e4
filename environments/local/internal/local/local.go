// Package local is the environment plugin "local". It makes sandboxes from
// Linux namespaces and the host's own programs, without an engine, root or a
// daemon.
//
// It checks a Spec, refuses what is not possible, and leaves the creation of
// sandboxes to the other packages. It must not mount, map ids or start a
// process.
package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-eval/berth/environments/internal/hostcheck"
	"github.com/berth-eval/berth/environments/local/internal/base"
	"github.com/berth-eval/berth/environments/local/internal/cgroup"
	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/maker"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// Config is the body of an `environment` block with plugin = "local".
type Config struct {
	Pids       int64 `berth:"pids" default:"4096" doc:"Most processes that one user of a sandbox may have, where the task names no limit."`
	StorageMiB int64 `berth:"storage_mib" default:"0" doc:"Most that a sandbox may write, in MiB, where the task names no limit. It is kept in memory. 0: half of the machine's memory."`
}

// Validate has no side effects and reports every problem.
func (c *Config) Validate() (ps []config.Problem) {
	if c.Pids < 16 {
		ps = append(ps, config.Problem{
			Path: "pids", Summary: "Too few processes",
			Detail: fmt.Sprintf("Got %d. PID 1 and a shell with a few children need 16; write 16 or more.", c.Pids),
		})
	}
	if c.StorageMiB < 0 {
		ps = append(ps, config.Problem{
			Path: "storage_mib", Summary: "Storage is negative",
			Detail: fmt.Sprintf("Got %d. Write a size in MiB, or 0 for half of the machine's memory.", c.StorageMiB),
		})
	}
	return ps
}

// Environment is the plugin. Safe for concurrent use.
type Environment struct {
	process *ids.Process
	maker   *maker.Maker
	images  *images

	fault  error // why no sandbox can be made by this process at all
	checks []environment.MachineCheck
}

var _ environment.Environment = (*Environment)(nil)

// Options are what a process finds out about itself.
type Options struct {
	Process *ids.Process
	Fault   error       // of ids.Enter; Process is nil then
	Init    string      // path of local-init
	Places  base.Places // where state may be
}

// New returns the plugin. It never fails: Check reports what is wrong with this
// machine.
func New(o Options) *Environment {
	uid := os.Getuid()
	if o.Process != nil {
		uid = o.Process.UID
	}
	e := &Environment{
		process: o.Process, fault: o.Fault, checks: hostcheck.Here(uid).Checks(hostcheck.UserIDs, hostcheck.UserNamespaces, hostcheck.ControlGroups),
	}
	if e.fault != nil {
		return e
	}
	if e.maker, e.fault = maker.New(o.Process, o.Places, o.Init); e.fault != nil {
		return e
	}
	e.images = newImages(e.maker.WorkFolder)
	return e
}

// Close destroys every sandbox of this process.
func (e *Environment) Close() error {
	if e.maker == nil {
		return nil
	}
	return errors.Join(e.maker.Close(), e.images.close())
}

// Places are where state may be, by the environment of this process.
func Places(uid int) base.Places {
	find := runtimedir.For(uid)
	p := base.Places{Top: find.Dir}
	if uid == 0 {
		// Of several kinds: not every file system can shift ids.
		p.Cache = append(p.Cache, base.In("/var/cache"), base.In("/run"), func() (string, error) { return find.Own("/dev/shm") })
	}
	cache, home := os.Getenv("XDG_CACHE_HOME"), os.Getenv("HOME")
	switch {
	case filepath.IsAbs(cache):
		p.Cache = append(p.Cache, base.In(cache))
	case runtimedir.Ours(home) == nil: // after su it may be another user's
		p.Cache = append(p.Cache, base.In(filepath.Join(home, ".cache")))
	}
	return p
}

// Create makes a sandbox.
func (e *Environment) Create(ctx context.Context, spec environment.Spec) (environment.Sandbox, error) {
	if e.fault != nil {
		return environment.Sandbox{}, fmt.Errorf("%w: %w", environment.ErrRefused, e.fault)
	}
	j, err := e.judge(spec)
	if err != nil {
		return environment.Sandbox{}, err
	}
	if err = j.Refused(); err != nil {
		return environment.Sandbox{}, err
	}
	if !filepath.IsAbs(spec.Control) {
		return environment.Sandbox{}, fmt.Errorf("control folder is %q: an absolute path is needed", spec.Control)
	}
	files, err := e.images.files(j.image)
	if err != nil {
		return environment.Sandbox{}, err
	}
	defer files.release()
	o := maker.Order{
		Owner: spec.Labels.Owner, Trial: spec.Labels.Trial, Attempt: spec.Labels.Attempt,
		Public: spec.Network.Mode == environment.NetworkPublic, Control: spec.Control, Mounts: spec.Mounts, Files: files.file(), Workdir: j.workdir, Host: spec.Hostname,
		SizeMiB: j.storage, ShmMiB: spec.Limits.ShmMiB, Nproc: j.pids,
		Limits: cgroup.Limits{CPUMilli: spec.Limits.CPUMilli, MemoryMiB: spec.Limits.MemoryMiB, Pids: spec.Limits.Pids},
	}
	box, err := e.maker.Create(ctx, o)
	if err != nil {
		if errors.Is(err, maker.ErrForbidden) {
			err = fmt.Errorf("%w: %w", environment.ErrRefused, err)
		}
		return environment.Sandbox{}, err
	}
	return environment.Sandbox{ID: box.ID, PID: box.PID, Granted: j.Granted, Image: j.image.Facts, Findings: j.findings}, nil
}

// Destroy removes a sandbox.
func (e *Environment) Destroy(ctx context.Context, id string) (environment.Remains, error) {
	if e.fault != nil {
		return environment.Remains{}, e.fault
	}
	return e.maker.Destroy(ctx, id)
}

// List returns the ids of sandboxes of this user.
func (e *Environment) List(_ context.Context, owner string) ([]string, error) {
	if e.fault != nil {
		return nil, e.fault
	}
	return e.maker.List(owner)
}

// Check reports why Create would refuse spec.
func (e *Environment) Check(ctx context.Context, spec environment.Spec) (environment.Report, error) {
	if e.fault != nil {
		refused := environment.Problem{Summary: "No sandbox can be made on this machine", Detail: e.fault.Error()}
		return environment.Report{Refusals: []environment.Problem{refused}, Machine: e.checks}, nil //nolint:nilerr // a refusal is an answer
	}
	j, err := e.judge(spec)
	if err != nil {
		return environment.Report{}, err
	}
	if err := e.maker.Probe(ctx); err != nil {
		if ctx.Err() != nil {
			return environment.Report{}, err
		}
		j.Report.Refusals = append(j.Report.Refusals, environment.Problem{Summary: "No sandbox can be made on this machine", Detail: err.Error()})
	}
	j.Report.Machine = e.checks
	return j.Report, nil
}
