package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-eval/berth/environments/internal/judge"
	"github.com/berth-eval/berth/environments/internal/remains"
	"github.com/berth-eval/berth/plugins/environment"
)

// Each container of a sandbox has its own network namespace, in which
// sandboxd makes a device that leads through the core to the other containers. A
// sandbox without a network is therefore isolated whatever the engine's bridges,
// firewall and name server, and no engine runs out of subnets.

// TUN is the device that sandboxd needs for this.
const TUN = "/dev/net/tun"

// parts is what a sandbox has in addition to its main container, by the
// engine's names.
type parts struct {
	containers []part
	volumes    []string
}

type part struct {
	name string
	pid  int // of PID 1 in our pid namespace; 0: not known
}

// add adds what the sidecars used to what the main container did.
func (p parts) add(r *environment.Remains) {
	for _, c := range p.containers {
		used, _ := remains.Of(c.pid)
		r.OOMKills += used.OOMKills
		r.CPU += used.CPU
		r.Throttled += used.Throttled
		r.PeakMemoryMiB += used.PeakMemoryMiB // an upper bound: the peaks may have been at different times
	}
}

// judgeSidecars checks the sidecars and volumes. Their names fit: package task has
// checked them.
func (j *judgement) judgeSidecars(spec environment.Spec) {
	j.judgeVolumes("main", spec.Volumes)
	if _, err := os.Stat(TUN); err != nil && len(spec.Sidecars) > 0 {
		j.Refuse("Containers cannot be connected", fmt.Sprintf("This machine has no %s (%v). Load the kernel's module tun: sudo modprobe tun.", TUN, err))
	}
	for _, s := range spec.Sidecars {
		side := &judgement{config: j.config, remote: j.remote, facts: j.facts}
		side.judgeImage(environment.Spec{Image: s.Image})
		side.judgeLimits(s.Limits)
		side.judgePlaces(environment.Spec{Workdir: s.Workdir})
		side.judgeUsers(environment.Spec{Users: []string{s.User}})
		side.judgeVolumes(s.Name, s.Volumes)
		side.container.Mounts = nil // those of the experiment are for the agent
		side.container.NoSELinux = j.container.NoSELinux
		for _, p := range side.Report.Refusals {
			j.Refuse(fmt.Sprintf("Container %q: %s", s.Name, p.Summary), p.Detail)
		}
		for _, p := range side.Report.Degraded {
			j.Degrade(fmt.Sprintf("Container %q: %s", s.Name, p.Summary), p.Detail)
		}
		j.sidecars = append(j.sidecars, side.container)
	}
}

func (j *judgement) judgeVolumes(container string, vs []environment.Volume) {
	for _, v := range vs {
		if v.Name == "" || !path.IsAbs(v.Target) || judge.Reserved(v.Target) {
			j.Refuse("A volume cannot be mounted", fmt.Sprintf("%q on %q in container %q: a name and an absolute path that is the task's to use are needed.", v.Name, v.Target, container))
		}
	}
}

// compose creates a sandbox with several containers or with volumes; main
// describes its main container.
func (e *Environment) compose(ctx context.Context, j *judgement, spec environment.Spec, main Container, facts environment.ImageFacts) (made environment.Sandbox, err error) {
	p := parts{}
	defer func() {
		switch {
		case err == nil:
		case ctx.Err() != nil: // the caller is gone
			e.work.Go(func() { _ = j.remote.cleanHalf(ctx, main.Name, p) }) // gc finds what is left by its labels
		default:
			err = errors.Join(err, j.remote.cleanHalf(ctx, main.Name, p))
		}
	}()
	images := make([]Image, len(spec.Sidecars))
	hosts := map[string]string{}
	for i, s := range spec.Sidecars {
		if !filepath.IsAbs(s.Control) {
			return made, fmt.Errorf("control folder of container %q is %q: an absolute path is needed", s.Name, s.Control)
		}
		if images[i], err = e.image(ctx, j, s.Image, nil); err != nil {
			return made, fmt.Errorf("container %q: %w", s.Name, err)
		}
		hosts[s.Name] = s.Address
		alsoKnown(hosts, s.Address, s.Hostname, s.Aliases)
		p.containers = append(p.containers, part{name: main.Name + "-" + s.Name})
	}
	var file string
	if main.Linked = len(images) > 0; main.Linked {
		hosts["main"] = spec.Address
		alsoKnown(hosts, spec.Address, spec.Hostname, spec.Aliases)
		if file, err = hostsFile(spec.Scratch, hosts); err != nil {
			return made, err
		}
	}
	main.Hosts = hosts
	if p.volumes, err = e.volumes(ctx, j.remote, spec, main.Name); err != nil {
		return made, err
	}
	main.Volumes = named(main.Name, spec.Volumes)
	state, err := e.start(ctx, j.remote, main)
	if err != nil {
		return made, err
	}
	made = environment.Sandbox{ID: j.remote.id(main.Name), PID: state.PID, Granted: j.Granted, Image: facts, Sidecars: make([]environment.SidecarSandbox, len(images))}
	var all errgroup.Group
	for i := range spec.Sidecars {
		all.Go(func() error {
			s := &spec.Sidecars[i]
			c, f := j.sidecars[i], factsOf(images[i])
			c.Name, c.Image, c.Linked = p.containers[i].name, images[i].ID, true
			c.Labels = labels(spec.Labels, spec.Lease)
			c.Labels[labelPart] = main.Name
			c.Public, c.Hosts, c.Hostname = main.Public, hosts, s.Hostname
			c.Workdir = cmp.Or(s.Workdir, f.Workdir)
			c.Entrypoint = []string{program}
			c.Mounts = []environment.Mount{{Source: s.Control, Target: "/berth"}, {Source: file, Target: "/etc/hosts"}}
			c.Volumes = named(main.Name, s.Volumes)
			ran, wrong := e.start(ctx, j.remote, c)
			if wrong != nil {
				return fmt.Errorf("container %q: %w", s.Name, wrong)
			}
			p.containers[i].pid = ran.PID
			made.Sidecars[i] = environment.SidecarSandbox{Name: s.Name, PID: ran.PID, Image: f}
			return nil
		})
	}
	if err = all.Wait(); err != nil {
		return environment.Sandbox{}, err
	}
	e.keep(made.ID, main.Image, state, p)
	return made, nil
}

// alsoKnown adds further names of a container to hosts.
func alsoKnown(hosts map[string]string, address, hostname string, aliases []string) {
	if hostname != "" {
		hosts[hostname] = address
	}
	for _, name := range aliases {
		hosts[name] = address
	}
}

// hostsFile writes the hosts file of the sidecars. The main container has the
// engine's own, which its root can change. Engines differ in whether containers
// that join its network share that file.
func hostsFile(scratch string, addresses map[string]string) (string, error) {
	if !filepath.IsAbs(scratch) {
		return "", fmt.Errorf("scratch folder is %q: an absolute path is needed", scratch)
	}
	file := filepath.Join(scratch, "hosts")
	var text strings.Builder
	text.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		text.WriteString(addresses[name] + " " + name + "\n")
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil { //nolint:gosec // every user of the containers reads it
		return "", fmt.Errorf("names of the containers: %w", err)
	}
	return file, os.Chmod(file, 0o644) //nolint:gosec // independent of the umask
}

// named are volumes by the names that the engine knows them by.
func named(main string, vs []environment.Volume) []environment.Volume {
	out := make([]environment.Volume, len(vs))
	for i, v := range vs {
		out[i] = environment.Volume{Name: main + "-" + short(v.Name), Target: path.Clean(v.Target), ReadOnly: v.ReadOnly}
	}
	return out
}

// volumes creates the volumes of all containers of a sandbox.
func (e *Environment) volumes(ctx context.Context, r *remote, spec environment.Spec, main string) (made []string, err error) {
	all := named(main, spec.Volumes)
	for i := range spec.Sidecars {
		all = append(all, named(main, spec.Sidecars[i].Volumes)...)
	}
	for _, v := range all {
		if slices.Contains(made, v.Name) {
			continue
		}
		free, err := r.slot(ctx)
		if err != nil {
			return made, err
		}
		l := labels(spec.Labels, spec.Lease)
		l[labelPart] = main
		// Not canceled with ctx: the engine would continue, and nobody would
		// know of the volume.
		calm, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		err = r.CreateVolume(calm, v.Name, l)
		cancel()
		free()
		if err != nil {
			return made, fmt.Errorf("%s create volume: %w", r.name, err)
		}
		made = append(made, v.Name)
	}
	return made, nil
}

// partsOf finds the parts of a sandbox that another process made.
func (r *remote) partsOf(ctx context.Context, main string) (p parts, err error) {
	want := mine()
	want[labelPart] = main
	cs, err := r.Containers(ctx, want)
	if err != nil {
		return p, fmt.Errorf("%s list: %w", r.name, err)
	}
	for _, c := range cs {
		p.containers = append(p.containers, part{name: c.Name})
	}
	vs, err := r.Volumes(ctx, want)
	if err != nil {
		return p, fmt.Errorf("%s list volumes: %w", r.name, err)
	}
	for _, v := range vs {
		p.volumes = append(p.volumes, v.Name)
	}
	return p, nil
}

// cleanAll removes a sandbox with its parts: the sidecars first, since engines
// keep a container whose network others are in, and volumes last, which are
// kept while they are in use.
func (r *remote) cleanAll(ctx context.Context, main string, p parts) error {
	var all errgroup.Group
	for _, c := range p.containers {
		all.Go(func() error { return r.clean(ctx, c.name) })
	}
	errs := []error{all.Wait(), r.clean(ctx, main)}
	for _, v := range p.volumes {
		if err := r.RemoveVolume(ctx, v); err != nil && !errors.Is(err, ErrAbsent) {
			errs = append(errs, fmt.Errorf("%s remove volume: %w", r.name, err))
		}
	}
	return errors.Join(errs...)
}

// cleanHalf is cleanAll for a sandbox whose creation failed. A sidecar whose
// creation was canceled may still appear, and the main container cannot be
// removed before it.
func (r *remote) cleanHalf(ctx context.Context, main string, p parts) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	for {
		err := r.cleanAll(ctx, main, p)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// sandboxOf is the name of the sandbox that something listed is part of.
func sandboxOf(l Listed) string { return cmp.Or(l.Labels[labelPart], l.Name) }
