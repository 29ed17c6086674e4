package harbor

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
)

// modes are the words of the format for what plugins/task calls otherwise.
var modes = map[string]task.NetworkMode{
	"public": task.NetworkPublic, "no-network": task.NetworkNone, "allowlist": task.NetworkAllow,
}

var (
	hostName    = regexp.MustCompile(`^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$`)
	lastNumeric = regexp.MustCompile(`(?:^|\.)[0-9]+$`)
)

// baseline reads the network of an environment. The deprecated allow_internet
// counts only when nothing newer is written.
func (d *decoder) baseline(t *table) task.Network {
	allow, hasAllow := t.boolean("allow_internet")
	n := d.network(t, "public")
	if hasAllow {
		d.warn(t.at("allow_internet"), "Old spelling", "Write network_mode = %q.", map[bool]string{true: "public", false: "no-network"}[allow])
	}
	_, hasMode := t.m["network_mode"]
	_, hasHosts := t.m["allowed_hosts"]
	switch {
	case hasMode || hasHosts:
		return *n
	case hasAllow && !allow:
		return task.Network{Mode: task.NetworkNone}
	default:
		return task.Network{Mode: task.NetworkPublic}
	}
}

// network reads network_mode and allowed_hosts. With an empty default it is nil
// when no mode is written.
func (d *decoder) network(t *table, def string) *task.Network {
	word := t.word("network_mode", def, false, "public", "no-network", "allowlist")
	_, hasHosts := t.m["allowed_hosts"]
	hosts := d.hosts(t)
	if word != "allowlist" && (len(hosts) > 0 || (hasHosts && word == "")) {
		d.bad(t.at("allowed_hosts"), "Setting does not fit", "Hosts are allowed only with network_mode = \"allowlist\".")
		hosts = nil
	}
	if word == "" {
		return nil
	}
	return &task.Network{Mode: modes[word], Allow: hosts}
}

func (d *decoder) hosts(t *table) []string {
	var out []string
	for i, h := range t.strings("allowed_hosts") {
		n, err := normalHost(h)
		if err != nil {
			d.bad(index(t.at("allowed_hosts"), i), "Malformed host", "%q %v.", h, err)
			continue
		}
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// normalHost returns a host name, a "*." name, an address or a network in one
// spelling: lower case, no trailing dot.
func normalHost(h string) (string, error) {
	s := strings.TrimRight(strings.ToLower(strings.TrimSpace(h)), ".")
	if s == "" {
		return "", fmt.Errorf("is empty")
	}
	if strings.Contains(s, "://") {
		return "", fmt.Errorf("is a URL: write the host alone")
	}
	if strings.ContainsAny(s, "[]") {
		return "", fmt.Errorf("has brackets: write the address alone")
	}
	if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
		return addr.String(), nil
	}
	if strings.Contains(s, "/") {
		return normalNetwork(s)
	}
	if strings.Contains(s, ":") {
		return "", fmt.Errorf("has a port, which cannot be restricted: write the host alone")
	}
	name := strings.TrimPrefix(s, "*.")
	switch {
	case strings.Contains(name, "*"):
		return "", fmt.Errorf("has a \"*\" that is not a leading \"*.\"")
	case lastNumeric.MatchString(name):
		return "", fmt.Errorf("is not a valid IPv4 address")
	case len(name) > 253 || !hostName.MatchString(name):
		return "", fmt.Errorf("is not a host name")
	}
	return s, nil
}

func normalNetwork(s string) (string, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return "", fmt.Errorf("has a path, or is not a network in CIDR form: write the host alone, or such as 10.0.0.0/8")
	}
	if p != p.Masked() {
		return "", fmt.Errorf("has bits set beyond its prefix: write %s", p.Masked())
	}
	return p.String(), nil
}
