package egress

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Rules are the allowed hosts. The zero value allows none.
type Rules struct {
	// Any allows every host outside this machine and private networks.
	Any      bool
	text     []string
	names    map[string]bool // exactly
	suffixes []string        // with the dot: ".example.com"
	networks []netip.Prefix
}

// hostForm matches a DNS name in lower case; "_" is accepted because it is in
// use.
var hostForm = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)

// numeric matches names that are, or could be read as, addresses in another
// notation.
var numeric = regexp.MustCompile(`(^|\.)(0x[0-9a-f]*|[0-9]+)$`)

// Parse parses a list of host names, "*.name" (every name below it, but not the
// name itself), addresses, and networks as address/bits.
func Parse(allow []string) (Rules, error) {
	r := Rules{text: slices.Clone(allow), names: map[string]bool{}}
	for _, text := range allow {
		s := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(text)), ".")
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			r.networks = append(r.networks, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			continue
		}
		if p, err := netip.ParsePrefix(s); err == nil {
			r.networks = append(r.networks, p.Masked())
			continue
		}
		name := strings.TrimPrefix(s, "*.")
		if len(name) > 253 || !hostForm.MatchString(name) || numeric.MatchString(name) {
			return Rules{}, fmt.Errorf("host %q: write a name, \"*.name\", an address, or a network such as 10.0.0.0/8, without a port", text)
		}
		if name != s {
			r.suffixes = append(r.suffixes, "."+name)
		} else {
			r.names[name] = true
		}
	}
	return r, nil
}

// String returns the list in its original form.
func (r Rules) String() string {
	switch {
	case r.Any:
		return "any public host"
	case len(r.text) == 0:
		return "none"
	default:
		return strings.Join(r.text, ", ")
	}
}

// name reports whether a host with that name may be looked up and reached.
func (r Rules) name(host string) bool {
	if len(host) > 253 || !hostForm.MatchString(host) || numeric.MatchString(host) {
		return false
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return r.names[host]
	}
	return r.Any || r.names[host] || slices.ContainsFunc(r.suffixes, func(s string) bool { return strings.HasSuffix(host, s) && host != s[1:] })
}

// listed reports whether the list contains an address.
func (r Rules) listed(a netip.Addr) bool {
	return slices.ContainsFunc(r.networks, func(p netip.Prefix) bool { return p.Contains(a) })
}

// inner are networks that names must not lead to unless they are listed: this
// machine, networks around it, and networks that embed other addresses.
var inner = func() (ps []netip.Prefix) {
	for _, s := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16",
		"198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
		"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
	} {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}()

func isInner(a netip.Addr) bool {
	return slices.ContainsFunc(inner, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Covers reports whether r allows everything that o allows.
func (r Rules) Covers(o Rules) bool {
	if o.Any && !r.Any {
		return false
	}
	for name := range o.names {
		if !r.name(name) {
			return false
		}
	}
	for _, suffix := range o.suffixes {
		if !r.Any && !slices.ContainsFunc(r.suffixes, func(s string) bool { return strings.HasSuffix(suffix, s) }) {
			return false
		}
	}
	for _, p := range o.networks {
		holds := func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) }
		if (!r.Any || overlapsInner(p)) && !slices.ContainsFunc(r.networks, holds) {
			return false
		}
	}
	return true
}

// Inner returns the entries that lead to this machine or a private network.
func (r Rules) Inner() Rules {
	out := Rules{names: map[string]bool{}}
	for name := range r.names {
		if name == "localhost" || strings.HasSuffix(name, ".localhost") {
			out.names[name], out.text = true, append(out.text, name)
		}
	}
	for _, p := range r.networks {
		if overlapsInner(p) {
			out.networks, out.text = append(out.networks, p), append(out.text, p.String())
		}
	}
	return out
}

// Empty reports whether nothing is allowed.
func (r Rules) Empty() bool { return !r.Any && len(r.names)+len(r.suffixes)+len(r.networks) == 0 }

func overlapsInner(p netip.Prefix) bool {
	return slices.ContainsFunc(inner, func(q netip.Prefix) bool { return q.Overlaps(p) })
}
