package sandbox

import (
	"net/netip"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

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
