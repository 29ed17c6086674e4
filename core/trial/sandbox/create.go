package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/egress"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/task"
)

// Order describes a sandbox to create, and the environment of its commands.
type Order struct {
	Spec     environment.Spec             // without the control folders, which Create makes
	Folder   string                       // path of the control folder, and prefix of those of sidecars
	Sandboxd string                       // path of the program
	Task     *task.Environment            // has the sidecars, and their dependencies
	Sidecars map[string]map[string]string // variables of the sidecars, by name
	Egress   egress.Options               // for the connections to the hosts in Reach, with NetworkAllow
	Reach    task.Hosts                   // until the first Allow
}

// Create makes the control folders and calls create to make the sandbox. When
// it fails, nothing is left. The sandbox is not connected yet.
func Create(o Order, create func(environment.Spec) (environment.Sandbox, error)) (_ *Sandbox, err error) {
	w := &Sandbox{task: o.Task}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Shutdown())
		}
	}()
	if w.folder, err = host.NewFolder(o.Folder, o.Sandboxd); err != nil {
		return nil, err
	}
	o.Spec.Control, o.Spec.Sidecars = w.folder.Path, slices.Clone(o.Spec.Sidecars)
	for i := range o.Task.Sidecars {
		c := &Sidecar{Sandbox: &Sandbox{}, task: &o.Task.Sidecars[i]}
		if c.folder, err = host.NewFolder(fmt.Sprint(o.Folder, i), o.Sandboxd); err != nil {
			return nil, err
		}
		w.Sidecars = append(w.Sidecars, c)
		for j := range o.Spec.Sidecars {
			if s := &o.Spec.Sidecars[j]; s.Name == c.task.Name {
				s.Control, s.Address = c.folder.Path, addressOf(i+1).String()
			}
		}
	}
	if err = w.link(&o.Spec); err != nil {
		return nil, err
	}
	if w.Made, err = create(o.Spec); err != nil {
		return nil, err
	}
	w.Dir, w.Env = cmp.Or(o.Spec.Workdir, w.Made.Image.Workdir, "/"), Merge(w.Made.Image.Env, o.Spec.Env)
	for _, c := range w.Sidecars {
		c.made(w.Made.Sidecars, o.Sidecars[c.task.Name])
	}
	w.route(o)
	return w, nil
}

// made stores what the environment reports about a sidecar.
func (c *Sidecar) made(all []environment.SidecarSandbox, env map[string]string) {
	i := slices.IndexFunc(all, func(m environment.SidecarSandbox) bool { return m.Name == c.task.Name })
	if c.missing = i < 0; c.missing {
		return
	}
	m := &all[i]
	c.Made = environment.Sandbox{Stream: m.Stream, PID: m.PID, Image: m.Image}
	c.Dir, c.User = cmp.Or(c.task.Workdir, m.Image.Workdir, "/"), cmp.Or(c.task.User, m.Image.User)
	c.Env = Merge(m.Image.Env, env)
}

// Merge merges variables; later ones take precedence.
func Merge(envs ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, e := range envs {
		maps.Copy(out, e)
	}
	return out
}

// Connect waits for the first messages of the main container and its sidecars.
func (w *Sandbox) Connect(ctx context.Context) error {
	for _, c := range w.Sidecars {
		if c.missing {
			return fmt.Errorf("the environment made no container %q", c.task.Name)
		}
	}
	if err := w.connect(ctx); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range w.Sidecars {
		g.Go(func() error { return c.named(c.connect(ctx)) })
	}
	return g.Wait()
}

// connect waits for the first message of one container, and until it has joined
// the network of all.
func (w *Sandbox) connect(ctx context.Context) error {
	if err := w.first(ctx); err != nil || w.joined == nil {
		return err
	}
	return w.joined.Wait(ctx)
}

// first waits for the first message of one container.
func (w *Sandbox) first(ctx context.Context) (err error) {
	if w.Made.Stream != "" {
		return fmt.Errorf("%w: a sandbox behind a byte stream", environment.ErrUnsupported)
	}
	if w.Sandbox, err = host.Connect(ctx, w.folder, w.Made.PID, limits.Lease); err != nil {
		w.Sandbox = nil
		return err
	}
	if w.way != nil {
		if err = w.openWay(ctx); err != nil { // changes Env
			return err
		}
	}
	w.core, err = w.Shell(ctx, host.Session{ID: coreSession, Dir: w.Dir, Env: List(w.Env), Grading: true})
	return err
}

// subnet is the network of a sandbox with several containers. It exists only
// there. It is a private network, as programs expect, and none that clouds or
// engines use by default.
var subnet = netip.MustParsePrefix("172.30.255.0/24")

// addressOf returns the address of main, 0, or of a sidecar, from 1 on. There
// are fewer than 200.
func addressOf(i int) netip.Addr {
	a := subnet.Addr().As4()
	a[3] = byte(2 + i)
	return netip.AddrFrom4(a)
}

// link gives the containers of a sandbox a network, if there are several.
func (w *Sandbox) link(spec *environment.Spec) (err error) {
	if len(w.Sidecars) == 0 {
		return nil
	}
	w.net, spec.Address = host.NewNetwork(), addressOf(0).String()
	if w.joined, err = w.net.Join(w.folder.Path, netip.PrefixFrom(addressOf(0), subnet.Bits())); err != nil {
		return err
	}
	for i, c := range w.Sidecars {
		if c.joined, err = w.net.Join(c.folder.Path, netip.PrefixFrom(addressOf(i+1), subnet.Bits())); err != nil {
			return err
		}
	}
	return nil
}

// route gives a sandbox without a network a connection to the hosts that Allow
// names, once it connects, and gives its containers the variables by which
// programs find the proxy. Sandboxes of other modes need none.
func (w *Sandbox) route(o Order) {
	if o.Spec.Network.Mode != environment.NetworkAllow {
		return
	}
	w.way = egress.New(o.Egress)
	w.way.Allow(o.Reach)
	w.Made.Granted.How += ", hosts through a proxy of the core (CONNECT)"
	if len(w.Sidecars) == 0 {
		return
	}
	w.direct = []string{task.MainContainer, o.Spec.Address}
	for _, side := range o.Spec.Sidecars {
		w.direct = append(w.direct, side.Name, side.Address)
	}
	for _, side := range w.Sidecars {
		side.way, side.direct = w.way, w.direct
	}
}

// Allow sets which hosts may be reached from now on, and cuts open connections.
// It does nothing if the sandbox's network is always none or public.
func (w *Sandbox) Allow(h task.Hosts) {
	if w.way != nil {
		w.way.Allow(h)
	}
}

// Unreached returns the hosts that could not be reached since the last call of Allow,
// with the reason.
func (w *Sandbox) Unreached() map[string]string {
	if w == nil || w.way == nil {
		return nil
	}
	return w.way.Failed()
}

// openWay opens the port in one container. It closes with the sandbox.
func (w *Sandbox) openWay(ctx context.Context) error {
	if w.way == nil {
		return nil
	}
	port, err := w.Listen(ctx, 0, w.way.Serve)
	if err != nil {
		return err
	}
	for k, v := range egress.Env(port.Number, w.direct) {
		if _, set := w.Env[k]; !set {
			w.Env[k] = v
		}
	}
	return nil
}
