package sandbox

import (
	"context"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/egress"
	"github.com/berth-eval/berth/plugins/task"
)

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
