package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run/cluster"
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
func (p *place) bundled(program string, copied bool) bundle.Bundle {
	p.test.Helper()
	scratch := filepath.Join(p.dir, "s")
	e2etest.Must(p.test, os.MkdirAll(scratch, 0o700))
	root := filepath.Join("shared", "where@1.0", bundle.Root)
	file := p.write(filepath.Join(root, "bin", "where"), program)
	if err := os.Chmod(file, 0o755); err != nil { //nolint:gosec // a program
		p.test.Fatal(err)
	}
	sum, err := bundle.Measure(filepath.Join(p.dir, root))
	e2etest.Must(p.test, err)
	m := bundle.Manifest{
		Format: 1, Name: "where", Version: "1.0", Arch: runtime.GOARCH, Digest: sum.Digest, Place: bundle.Place, Files: sum.Files, Bytes: sum.Bytes,
	}
	raw, err := json.Marshal(m)
	e2etest.Must(p.test, err)
	at := p.write(filepath.Join("shared", "where@1.0", bundle.ManifestFile), string(raw))
	p.env = append(p.env, bundle.EnvDir+"="+filepath.Join(p.dir, "shared"))
	p.write("berth.hcl", fmt.Sprintf(where, scratch, copied))
	return bundle.Bundle{Manifest: m, Folder: filepath.Dir(at)}
}

// With copy_bundles sandboxes get a bundle from a disk of the pilot's machine, and
// without it from where it is.
func TestPilotsCopyBundles(t *testing.T) {
	t.Parallel()
	for _, copied := range []bool{false, true} {
		t.Run(fmt.Sprint(copied), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.task("tiny", "", solveTiny, testTiny)
			b := p.bundled(sayWhere, copied)
			c, dir := p.coordinated()
			one := p.pilot(dir, 1)
			c.wait().want(t, 0)
			one.wait().want(t, 0)
			results, _ := attemptsOf(t, dir)
			if len(results) != 1 {
				t.Fatalf("%d results", len(results))
			}
			for at, r := range results {
				if r.Outcome != record.Passed || len(r.Bundles) != 1 || r.Bundles[0].Digest != b.Digest {
					t.Errorf("%s: %s, %+v, %+v", at, r.Outcome, r.Error, r.Bundles)
				}
				said := read(filepath.Join(dir, "trials", at, record.StepsFile))
				mine := "bundles/" + strings.ReplaceAll(b.Digest, ":", "-") + "/where@1.0/" + bundle.Root
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

// A pilot that cannot make a good copy, or has another bundle, takes no attempt, and the run hears why.
func TestPilotsDeclineWithoutCopiesOfBundles(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.task("tiny", "", solveTiny, testTiny)
	b := p.bundled(sayWhere, true)
	c, dir := p.coordinated()
	p.write(filepath.Join("shared", "where@1.0", bundle.Root, "more"), "changed")
	if said := p.pilot(dir, 1).wait().want(t, 2).stderr; !strings.Contains(said, "copy_bundles: copy bundle where@1.0 to ") || !strings.Contains(said, "has been changed") {
		t.Errorf("changed content: %s", said)
	}
	e2etest.Must(t, os.RemoveAll(b.Folder))
	p.bundled("#!/bin/sh\n", true)
	if said := p.pilot(dir, 1).wait().want(t, 2).stderr; !strings.Contains(said, "this machine would make other attempts than the run: bundle where@1.0 is sha256:") {
		t.Errorf("another bundle: %s", said)
	}
	p.bundled(sayWhere, true)
	p.pilot(dir, 1).wait().want(t, 0)
	c.wait().want(t, 0)
	p.vacated()
}

// A pilot whose scratch folder has no room for the copies takes no attempt, and the
// journal of the pilot has the reason.
func TestCopiesOfBundlesThatDoNotFit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.task("tiny", "", solveTiny, testTiny)
	b := p.bundled(sayWhere+"exit\n#"+strings.Repeat("-", 8<<20), true)
	c, dir := p.coordinated()
	full := func(why string) {
		t.Helper()
		one := p.shepherd(ownMounts, []string{diskEnv + "=s|4m"}, filepath.Join(bin, "berth"), "pilot", dir, "--in-flight", "1")
		if said := one.wait().want(t, 2).stderr; !strings.Contains(said, why) || !strings.Contains(said, "name another folder with scratch, or remove copy_bundles") {
			t.Errorf("a full disk: %s", said)
		}
	}
	full("MiB are left, and it needs 9: ")
	journals, err := filepath.Glob(filepath.Join(dir, cluster.Dir, "pilots", "*.jsonl"))
	if err != nil || len(journals) != 1 || !strings.Contains(read(journals[0]), "the disk is full: ") {
		t.Errorf("the run does not hear why: %q, %v", journals, err)
	}
	small := b.Manifest // it is full although there seemed to be room
	small.Bytes = 1
	raw, err := json.Marshal(small)
	e2etest.Must(t, err)
	p.write(filepath.Join("shared", "where@1.0", bundle.ManifestFile), string(raw))
	full(syscall.ENOSPC.Error())
	p.pilot(dir, 1).wait().want(t, 0) // on a larger disk
	c.wait().want(t, 0)
	p.vacated()
}
