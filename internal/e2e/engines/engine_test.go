package engines

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
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

// machine is a container engine. It is asked with the part of Docker's API that
// Docker and Podman both have.
type machine struct {
	plugin, path string
	client       *http.Client
}

func machineAt(plugin, path string) *machine {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return &machine{plugin, path, &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: patience}}
}

// env returns the variables that make the plugin use this engine.
func (m *machine) env() string {
	if m.plugin == "docker" {
		return "DOCKER_HOST=unix://" + m.path
	}
	return "CONTAINER_HOST=unix://" + m.path
}

// get sends a request to the engine, and reports whether the engine has what
// was asked for.
func (m *machine) get(ctx context.Context, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/v1.40"+path, http.NoBody)
	if err != nil {
		return err
	}
	a, err := m.client.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, a.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(a.Body).Decode(into)
}

// container is an entry of the engine's list of containers.
type container struct {
	ID    string `json:"Id"`
	State string
}

// containers lists the containers of a run, or of all runs of Berth.
func (m *machine) containers(t *testing.T, run string) (all []container) {
	t.Helper()
	label := "dev.berth.user"
	if run != "" {
		label = "dev.berth.owner=" + run
	}
	filter, err := json.Marshal(map[string][]string{"label": {label}})
	if err == nil {
		err = m.get(t.Context(), "/containers/json?all=1&filters="+url.QueryEscape(string(filter)), &all)
	}
	if err != nil {
		t.Fatalf("%s at %s: %v", m.plugin, m.path, err)
	}
	return all
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
	return machineAt(plugin, strings.TrimPrefix(e2etest.FindEngine(t, plugin, image).Socket, "unix://"))
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
