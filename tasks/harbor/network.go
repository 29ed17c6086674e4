package harbor

import (
	"errors"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
)

// modes are the words of the format for what plugins/task calls otherwise.
var modes = map[string]task.NetworkMode{
	"public": task.NetworkPublic, "no-network": task.NetworkNone, "allowlist": task.NetworkAllow,
}

// baseline reads the network of an environment. The deprecated allow_internet
// counts only when nothing newer is written.
func (d *decoder) baseline(t *document.Table) task.Network {
	allow, hasAllow := t.Boolean("allow_internet")
	n := d.network(t, "public")
	if hasAllow {
		d.Warn(t.At("allow_internet"), "Old spelling", "Write network_mode = %q.", map[bool]string{true: "public", false: "no-network"}[allow])
	}
	_, hasMode := t.Values["network_mode"]
	_, hasHosts := t.Values["allowed_hosts"]
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
func (d *decoder) network(t *document.Table, def string) *task.Network {
	word := t.Word("network_mode", def, "public", "no-network", "allowlist")
	_, hasHosts := t.Values["allowed_hosts"]
	hosts := d.hosts(t)
	if word != "allowlist" && (len(hosts) > 0 || (hasHosts && word == "")) {
		d.Bad(t.At("allowed_hosts"), "Setting does not fit", "Hosts are allowed only with network_mode = \"allowlist\".")
		hosts = nil
	}
	if word == "" {
		return nil
	}
	return &task.Network{Mode: modes[word], Allow: hosts}
}

func (d *decoder) hosts(t *document.Table) []string {
	var out []string
	for i, h := range t.Strings("allowed_hosts") {
		n, err := task.NormalHost(h)
		if err == nil && strings.Contains(n, "_") {
			err = errors.New("has an underscore, which the format does not allow")
		}
		if err != nil {
			d.Bad(document.Index(t.At("allowed_hosts"), i), "Malformed host", "%q %v.", h, err)
			continue
		}
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}
