package slurm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// The archive of an image is on the login node and on one other node. Pilots of the
// others say so and take nothing, and the run is made where the archive is.
func TestAnArchiveThatIsOnOneNode(t *testing.T) { //nolint:paralleltest // the cluster is shared
	s := podmanSite(t)
	s.work = 1
	const name, trials, archive = "lonely", 6, "/tmp/lonely.tar"
	for _, node := range []string{"login", "node2"} {
		s.on(node, "cp "+s.shared+"/base.tar "+archive)
	}
	s.boxes(name, archive, "agent.oracle", trials, executor("requeue"))
	if code, out := s.start(name, "run . --no-live").wait(); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	s.settled(name, trials)
	for at, r := range e2etest.Attempts(t, s.folder(name)) {
		if r.Outcome != record.Passed || r.Worker == nil || r.Worker.Node != "node2" {
			t.Errorf("%s: %s by %+v", at, r.Outcome, r.Worker)
		}
	}
	declined := map[string]string{}
	for _, p := range s.shown(name).Pilots {
		if p.Done == 0 {
			declined[p.Node] = p.Why
		}
	}
	for _, node := range []string{"node1", "node3"} {
		if want := `The archive of the image is not there. There is no file "` + archive + `" on this machine.`; !strings.Contains(declined[node], want) {
			t.Errorf("%s says %q", node, declined[node])
		}
	}
	s.vacated()
}

// With copy_bundles, sandboxes of Podman on nodes get the bundle of their agent from the
// scratch folder of the node.
func TestPodmanOnNodesCopiesBundles(t *testing.T) { //nolint:paralleltest // the cluster is shared
	s := podmanSite(t)
	const name, trials = "bundled", 6
	dir := filepath.Join(s.files, "bundles", "where@1.0")
	e2etest.Write(t, filepath.Join(dir, bundle.Root), map[string]string{
		"bin/where": "#!/bin/sh\n" + seesNetwork + "\ngrep ' " + bundle.Place + " ' /proc/self/mountinfo\n",
	})
	sum, err := bundle.Measure(filepath.Join(dir, bundle.Root))
	e2etest.Must(t, err)
	raw, err := json.Marshal(bundle.Manifest{
		Format: 1, Name: "where", Version: "1.0", Arch: runtime.GOARCH, Digest: sum.Digest, Place: bundle.Place, Files: sum.Files, Bytes: sum.Bytes,
	})
	e2etest.Must(t, err)
	e2etest.Must(t, os.WriteFile(filepath.Join(dir, bundle.ManifestFile), raw, 0o644)) //nolint:gosec // the user reads it
	user := strings.TrimSpace(s.on("login", "id -un"))
	s.root("login", "mkdir -p /home/"+user+"/.local/share/berth && mv "+s.shared+"/bundles /home/"+user+"/.local/share/berth/ && chown -R "+user+" /home/"+user+"/.local")

	block := strings.Replace(executor("requeue"), "{", "{\n  copy_bundles = true", 1) + `agent "where" {
  plugin = "cli"
  config {
    bundle  = "where@1.0"
    command = ["{bundle}/bin/where"]
  }
}
`
	s.boxes(name, filepath.Join(s.shared, "base.tar"), "agent.where", trials, block)
	if code, out := s.start(name, "run . --no-live").wait(); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	s.settled(name, trials)
	for at, r := range e2etest.Attempts(t, s.folder(name)) {
		said := e2etest.Read(t, s.folder(name), store.TrialsDir, at, record.StepsFile)
		copied := "/bundles/" + strings.ReplaceAll(sum.Digest, ":", "-") + "/where@1.0/" + bundle.Root
		if len(r.Bundles) != 1 || r.Bundles[0].Digest != sum.Digest || !strings.Contains(said, copied) || strings.Contains(said, "share/berth") {
			t.Errorf("%s on %s: %+v, mounted from elsewhere: %s", at, r.Worker.Node, r.Bundles, said)
		}
	}
	s.noJobs()
}
