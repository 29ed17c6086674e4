package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// where is an agent that says where its bundle is on the host, and works.
const where = `experiment "e2e" {
  datasets    = [dataset.tasks]
  environment = environment.local
  agent       = agent.where
}
dataset "tasks" {
  format = "harbor"
  path   = "./tasks"
}
environment "local" {
  plugin = "local"
}
agent "where" {
  plugin = "cli"
  config {
    bundle  = "where@1.0"
    command = ["{bundle}/bin/where"]
  }
}
executor "pilots" {
  scratch      = %q
  copy_bundles = %t
}
`

const sayWhere = "#!/bin/sh\n: > /app/done\ngrep ' " + bundle.Place + " ' /proc/self/mountinfo\n"

// bundled makes a bundle with a program for where, in a folder that stands for a shared one, and
// writes the experiment.
func (p *place) bundled(copied bool) (digest string) {
	p.test.Helper()
	scratch := filepath.Join(p.dir, "s")
	e2etest.Must(p.test, os.MkdirAll(scratch, 0o700))
	root := filepath.Join("shared", "where@1.0", bundle.Root)
	file := p.write(filepath.Join(root, "bin", "where"), sayWhere)
	if err := os.Chmod(file, 0o755); err != nil { //nolint:gosec // a program
		p.test.Fatal(err)
	}
	sum, err := bundle.Measure(filepath.Join(p.dir, root))
	e2etest.Must(p.test, err)
	raw, err := json.Marshal(bundle.Manifest{
		Format: 1, Name: "where", Version: "1.0", Arch: runtime.GOARCH, Digest: sum.Digest, Place: bundle.Place, Files: sum.Files, Bytes: sum.Bytes,
	})
	e2etest.Must(p.test, err)
	p.write(filepath.Join("shared", "where@1.0", bundle.ManifestFile), string(raw))
	p.env = append(p.env, bundle.EnvDir+"="+filepath.Join(p.dir, "shared"))
	p.write("berth.hcl", fmt.Sprintf(where, scratch, copied))
	return sum.Digest
}

// With copy_bundles sandboxes get a bundle from a disk of the pilot's machine, and
// without it from where it is.
func TestPilotsCopyBundles(t *testing.T) {
	t.Parallel()
	for _, copied := range []bool{false, true} {
		t.Run(fmt.Sprint(copied), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.task("tiny", "", e2etest.SolveTiny, e2etest.TestTiny)
			digest := p.bundled(copied)
			c, dir := p.coordinated()
			one := p.pilot(dir, 1)
			c.wait().want(t, 0)
			one.wait().want(t, 0)
			results, _ := attemptsOf(t, dir)
			if len(results) != 1 {
				t.Fatalf("%d results", len(results))
			}
			for at, r := range results {
				if r.Outcome != record.Passed || len(r.Bundles) != 1 || r.Bundles[0].Digest != digest {
					t.Errorf("%s: %s, %+v, %+v", at, r.Outcome, r.Error, r.Bundles)
				}
				said := read(filepath.Join(dir, "trials", at, record.StepsFile))
				mine := "bundles/" + strings.ReplaceAll(digest, ":", "-") + "/where@1.0/" + bundle.Root
				if strings.Contains(said, mine) != copied || strings.Contains(said, "shared/where@1.0/"+bundle.Root) == copied {
					t.Errorf("the bundle was mounted from elsewhere: %s", said)
				}
			}
			there, err := filepath.Glob(filepath.Join(p.dir, "s", "*", "bundles", "sha256-*", "where@1.0"))
			if err != nil || len(there) == 1 != copied {
				t.Errorf("copies: %q, %v", there, err)
			}
			p.vacated()
		})
	}
}
