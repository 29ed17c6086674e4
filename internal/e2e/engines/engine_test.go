package engines

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// These images are loaded into both engines by scripts/engines-for-tests.
const (
	base   = "localhost/berth-test/base:1"
	debian = "docker.io/library/debian:bookworm-slim"
)

// machine is a container engine.
type machine struct{ e2etest.Engine }

// env returns the variable that makes the plugin use this engine.
func (m *machine) env() string {
	if m.Name == "docker" {
		return "DOCKER_HOST=" + m.Socket
	}
	return "CONTAINER_HOST=" + m.Socket
}

// containers lists the containers of a run.
func (m *machine) containers(t *testing.T, run string) string {
	t.Helper()
	out, err := m.Ask(t.Context(), t, "ps", "--all", "--quiet", "--filter", "label=dev.berth.owner="+run).CombinedOutput()
	if err != nil {
		t.Fatalf("%s at %s: %v\n%s", m.Name, m.Socket, err, out)
	}
	return strings.TrimSpace(string(out))
}

// rootless is why root does not try Podman.
const rootless = "Podman is not tried as root: run the tests as another user"

// machineFor finds an engine for tests that has an image. Without one it skips
// the test and says why.
func machineFor(t *testing.T, plugin, image string) *machine {
	t.Helper()
	if plugin == "podman" && os.Getuid() == 0 {
		t.Skip(rootless)
	}
	return &machine{e2etest.FindEngine(t, plugin, image)}
}

// run returns the id of the only run of the place, or nothing if the run has
// not begun.
func (p *place) run() string {
	p.test.Helper()
	files, err := filepath.Glob(filepath.Join(p.dir, "runs", "*", "manifest.jsonl"))
	if err != nil || len(files) != 1 {
		return ""
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), "\n")
	var head struct {
		Run struct {
			Run string `json:"run"`
		} `json:"run"`
	}
	if json.Unmarshal([]byte(first), &head) != nil {
		return ""
	}
	return head.Run.Run
}
