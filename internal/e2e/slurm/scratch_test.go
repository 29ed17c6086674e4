package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// The scratch folder of a node is nearly full for a while. Its pilot says so and takes
// nothing, the others go on, and no attempt is spoiled.
func TestAScratchFolderThatIsFull(t *testing.T) { //nolint:paralleltest // the cluster is shared
	s := newSite(t, "--scratch-size", "200m")
	const trials, name = 40, "cramped"
	s.experiment(name, trials, executor("requeue"))
	run := s.start(name, "run . --no-live")
	s.await("pilots work", func() bool { return s.results(name) > 3 && len(s.pilots("%i")) == 3 })
	node := s.pilots("%N")[0]
	s.on(node, "cd /srv/scratch && head -c $(($(df --output=avail --block-size=1 . | tail -n 1) - 8*1024*1024)) /dev/zero > filler")
	s.await("its pilot says so", func() bool { return strings.Contains(run.said(), "has no room for attempts") })
	s.goesOn(name)
	s.on(node, "rm /srv/scratch/filler")
	if code, out := run.wait(); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	if attempts := s.settled(name, trials); attempts != trials {
		t.Errorf("%d attempts of %d trials: some were spoiled", attempts, trials)
	}
	s.empty()
}

// Images of archives go to the scratch folder of a node. doctor says that they do not
// fit, and what is too large.
func TestDoctorSeesThatImagesDoNotFit(t *testing.T) { //nolint:paralleltest // the cluster is shared
	s := newSite(t, "--scratch-size", "200m")
	e2etest.Must(t, e2etest.Build(filepath.Join(filepath.Dir(s.script), ".."), filepath.Join(s.shared, "bin"), "./environments/podman"))
	for size, fits := range map[int64]bool{300 << 20: false, 1 << 20: true} {
		archive := filepath.Join(s.shared, "base.tar")
		e2etest.Must(t, os.WriteFile(archive, nil, 0o644)) //nolint:gosec // the user reads it
		e2etest.Must(t, os.Truncate(archive, size))
		s.experiment("images", 1, executor("requeue"))
		dir := filepath.Join(s.files, "images")
		for file, change := range map[string][2]string{
			"berth.hcl":            {`plugin = "local"`, `plugin = "podman"`},
			"tasks/slow/task.toml": {"[environment]", "[environment]\ndocker_image = \"docker-archive:" + archive + "\""},
		} {
			text := strings.Replace(e2etest.Read(t, dir, file), change[0], change[1], 1)
			e2etest.Must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)) //nolint:gosec // the user reads it
		}
		out := s.berth("images", "doctor berth.hcl; echo code $?")
		if strings.Contains(out, "this does not fit") == fits || !strings.Contains(out, "image "+archive) {
			t.Errorf("%d bytes:\n%s", size, out)
		}
	}
}
