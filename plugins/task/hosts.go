package task

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Hosts are the hosts that a network reaches. The zero value is none.
type Hosts struct {
	// Any is every host outside this machine and private networks.
	Any      bool
	text     []string
	names    map[string]bool // exactly
	suffixes []string        // with the dot: ".example.com"
	networks []netip.Prefix
}

// Hosts returns the hosts that the network reaches. Fails if a host in Allow is
// malformed.
func (n Network) Hosts() (Hosts, error) {
	switch n.Mode {
	case NetworkPublic:
		return Hosts{Any: true}, nil
	case NetworkAllow:
		return ParseHosts(n.Allow)
	default:
		return Hosts{}, nil
	}
}

// hostNameForm matches a DNS name in lower case; "_" is accepted because it is in
// use.
var hostNameForm = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)

// numericHost matches names that are, or could be read as, addresses in another
// notation.
var numericHost = regexp.MustCompile(`(^|\.)(0x[0-9a-f]*|[0-9]+)$`)

func isHostName(s string) bool {
	return len(s) <= 253 && hostNameForm.MatchString(s) && !numericHost.MatchString(s)
}

// NormalHost returns one host of Network.Allow in one spelling: a name in lower
// case, "*.name" (every name below it, but not the name itself), an address, or
// a network as address/bits. The error completes a sentence that begins with the
// host.
func NormalHost(host string) (string, error) {
	s := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(host)), ".")
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return a.Unmap().String(), nil
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		if p != p.Masked() {
			return "", fmt.Errorf("has bits set beyond its prefix: write %s", p.Masked())
		}
		return p.String(), nil
	}
	name := strings.TrimPrefix(s, "*.")
	switch {
	case s == "":
		return "", errors.New("is empty")
	case strings.Contains(s, "://"):
		return "", errors.New("is a URL: write the host alone")
	case strings.ContainsAny(s, "[]"):
		return "", errors.New("has brackets: write the address alone")
	case strings.Contains(s, "/"):
		return "", errors.New("has a path, or is not a network in CIDR form: write the host alone, or such as 10.0.0.0/8")
	case strings.Contains(s, ":"):
		return "", errors.New("has a port, which cannot be restricted: write the host alone")
	case strings.Contains(name, "*"):
		return "", errors.New("has a \"*\" that is not a leading \"*.\"")
	case numericHost.MatchString(name):
		return "", errors.New("is not a valid IPv4 address")
	case !isHostName(name):
		return "", errors.New("is not a host name")
	}
	return s, nil
}

// ParseHosts parses a list of hosts in the forms of NormalHost.
func ParseHosts(allow []string) (Hosts, error) {
	h := Hosts{text: slices.Clone(allow), names: map[string]bool{}}
	for _, text := range allow {
		s, err := NormalHost(text)
		if err != nil {
			return Hosts{}, fmt.Errorf("host %q %w", text, err)
		}
		if a, err := netip.ParseAddr(s); err == nil {
			h.networks = append(h.networks, netip.PrefixFrom(a, a.BitLen()))
		} else if p, err := netip.ParsePrefix(s); err == nil {
			h.networks = append(h.networks, p)
		} else if suffix, ok := strings.CutPrefix(s, "*"); ok {
			h.suffixes = append(h.suffixes, suffix)
		} else {
			h.names[s] = true
		}
	}
	return h, nil
}

// String returns the list in its original form.
func (h Hosts) String() string {
	switch {
	case h.Any:
		return "any public host"
	case len(h.text) == 0:
		return "none"
	default:
		return strings.Join(h.text, ", ")
	}
}

// Name reports whether a host with that name, in lower case, may be looked up
// and reached.
func (h Hosts) Name(host string) bool {
	if !isHostName(host) {
		return false
	}
	if isLocalName(host) {
		return h.names[host]
	}
	return h.Any || h.names[host] || slices.ContainsFunc(h.suffixes, func(s string) bool { return strings.HasSuffix(host, s) && host != s[1:] })
}

func isLocalName(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// Lists reports whether the list contains an address.
func (h Hosts) Lists(a netip.Addr) bool {
	return slices.ContainsFunc(h.networks, func(p netip.Prefix) bool { return p.Contains(a) })
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

// IsInner reports whether an address is on this machine or in a private network.
func IsInner(a netip.Addr) bool {
	return slices.ContainsFunc(inner, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Covers reports whether h allows everything that o allows.
func (h Hosts) Covers(o Hosts) bool {
	if o.Any && !h.Any {
		return false
	}
	for name := range o.names {
		if !h.Name(name) {
			return false
		}
	}
	for _, suffix := range o.suffixes {
		if !h.Any && !slices.ContainsFunc(h.suffixes, func(s string) bool { return strings.HasSuffix(suffix, s) }) {
			return false
		}
	}
	for _, p := range o.networks {
		holds := func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) }
		if (!h.Any || overlapsInner(p)) && !slices.ContainsFunc(h.networks, holds) {
			return false
		}
	}
	return true
}

// Inner returns the entries that lead to this machine or a private network.
func (h Hosts) Inner() Hosts {
	out := Hosts{names: map[string]bool{}}
	for name := range h.names {
		if isLocalName(name) {
			out.names[name], out.text = true, append(out.text, name)
		}
	}
	for _, p := range h.networks {
		if overlapsInner(p) {
			out.networks, out.text = append(out.networks, p), append(out.text, p.String())
		}
	}
	return out
}

// Empty reports whether nothing is allowed.
func (h Hosts) Empty() bool { return !h.Any && len(h.names)+len(h.suffixes)+len(h.networks) == 0 }

func overlapsInner(p netip.Prefix) bool {
	return slices.ContainsFunc(inner, func(q netip.Prefix) bool { return q.Overlaps(p) })
}
