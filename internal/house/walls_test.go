package house

import (
	"slices"
	"strings"
	"testing"
)

// only lists the folders that alone may import something: heavy dependencies
// stay in the one folder that needs them.
var only = []struct {
	prefix string
	in     []string
}{
	{"github.com/containers", nil},
	{"go.podman.io", []string{"environments/podman"}},
	{"github.com/moby/moby", []string{"environments/docker", "environments/internal/dockerapi"}},
	{"github.com/docker/docker", nil},
	{"github.com/docker/cli", nil},
	{"github.com/chromedp", []string{"environments/browser", "cmd/berth/internal/report/page", "cmd/berth/internal/view"}}, // those of cmd in their tests
	{"github.com/hashicorp/hcl", []string{"cmd/berth"}},
	{"github.com/zclconf", []string{"cmd/berth"}},
	{"github.com/spf13", []string{"cmd/berth", "internal"}},
	{"gonum.org", []string{"cmd/berth/internal/stats"}},
}

// under reports whether path is dir or below it.
func under(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// layers are the packages of the core, lowest first. A package imports only
// packages of lower layers, and its own subfolders.
var layers = [][]string{
	{"cell", "redact", "record"},
	{"models"},
	{"experiment", "gateway", "store"},
	{"plugin"},
	{"trial"},
	{"plan"},
	{"run"},
}

// layer returns the index in layers of a folder of the core, or -1.
func layer(name string) int {
	return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, name) })
}

// trespass returns the reason why the package from (a path below the module)
// must not import to (a full import path), or "".
func trespass(from, to string) string {
	if why := heavy(from, to); why != "" {
		return why
	}
	ours, ok := strings.CutPrefix(to, module+"/")
	if !ok || ours == "internal/testlevel" { // for the tests of every folder
		return ""
	}
	room, rest, _ := strings.Cut(from, "/")
	name, _, _ := strings.Cut(rest, "/")
	switch room {
	case "plugins":
		speaks := under(from, "plugins/model/chat/chattest") && under(ours, "dialects")
		if !under(ours, "plugins") && !speaks {
			return "plugins/ imports nothing of ours but itself; the model for tests speaks the dialects"
		}
	case "agents", "environments", "verifiers", "tasks":
		own := under(ours, room+"/"+name) || under(ours, room+"/internal")
		if !own && !under(ours, "plugins") {
			return room + "/ imports only plugins/, its own folder and " + room + "/internal"
		}
	case "dialects":
		replays := name == "replay" && ours == "core/gateway/recording"
		if !under(ours, "dialects") && !under(ours, "plugins") && !replays {
			return "dialects/ imports plugins/; dialects/replay also imports core/gateway/recording"
		}
	case "executors":
		if !under(ours, "executors/"+name) && !under(ours, "plugins") && ours != "core/run/cluster" {
			return "executors/ imports plugins/, its own folder and core/run/cluster"
		}
	case "core":
		if !under(ours, "core") && !under(ours, "plugins") {
			return "core/ imports plugins/ and never a concrete plugin or format"
		}
		return upward(name, ours)
	}
	return ""
}

// heavy returns the reason why a library belongs elsewhere, or "".
func heavy(from, to string) string {
	for _, o := range only {
		if under(to, o.prefix) && !slices.ContainsFunc(o.in, func(d string) bool { return under(from, d) }) {
			if o.in == nil {
				return o.prefix + " is replaced by another library"
			}
			return o.prefix + " belongs in " + strings.Join(o.in, " and ") + " only"
		}
	}
	return ""
}

// upward returns the reason why core/name must not import ours, or "".
func upward(name, ours string) string {
	inner, core := strings.CutPrefix(ours, "core/")
	if other, _, _ := strings.Cut(inner, "/"); core && other != name && layer(other) >= layer(name) {
		return "core/" + name + " imports only the layers of the core below it (see layers), not core/" + other
	}
	return ""
}

func TestNoImportCrossesAWall(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if name, core := strings.CutPrefix(p.rel(), "core/"); core {
			if name, _, _ = strings.Cut(name, "/"); layer(name) < 0 {
				t.Errorf("core/%s is in no layer: add it to layers", name)
			}
		}
		for _, imp := range p.Imports {
			if why := trespass(p.rel(), imp); why != "" {
				t.Errorf("%s imports %s: %s", p.rel(), imp, why)
			}
		}
		for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
			if strings.HasPrefix(p.rel(), "core/") && (strings.HasPrefix(imp, module+"/core/") || imp == module+"/dialects") {
				continue // a test may import higher layers
			}
			if why := trespass(p.rel(), imp); why != "" {
				t.Errorf("%s imports %s: %s", p.rel(), imp, why)
			}
		}
	}
}

// Programs must not link certain packages, whoever imports them.
func TestNoProgramLinksWhatItMustNot(t *testing.T) {
	t.Parallel()
	engines := []string{
		"github.com/containers", "go.podman.io", "github.com/moby/moby", "github.com/moby/buildkit/client",
		"github.com/docker/docker", "github.com/docker/cli", "github.com/chromedp",
	}
	program := []string{"github.com/hashicorp/hcl", "github.com/zclconf", "github.com/spf13"}
	for _, tt := range []struct {
		pattern string
		not     []string
	}{
		{"./plugins/...", slices.Concat(engines, program)},
		{"./core/...", slices.Concat(engines, program)},
		{"./cmd/berth", engines},
		// os/exec waits for children, and so does the reaper of PID 1: each
		// would take the other's.
		{"./cmd/berth-sandboxd", slices.Concat(engines, program, []string{"os/exec"})},
		{"./agents/...", slices.Concat(engines, program)},
		{"./verifiers/...", slices.Concat(engines, program)},
		{"./environments/local/...", slices.Concat(engines, program)},
	} {
		t.Run(tt.pattern, func(t *testing.T) {
			t.Parallel()
			dir := strings.TrimSuffix(strings.TrimPrefix(tt.pattern, "./"), "/...")
			if !slices.ContainsFunc(packages(t), func(p pkg) bool { return under(p.rel(), dir) }) {
				t.Skipf("there is no %s yet", dir)
			}
			for dep := range strings.FieldsSeq(string(goList(t, "-deps", tt.pattern))) {
				for _, not := range tt.not {
					if under(dep, not) {
						t.Errorf("%s links %s", tt.pattern, dep)
					}
				}
			}
		})
	}
}
