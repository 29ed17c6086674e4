package slurm

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// nodes are those that take jobs.
var nodes = []string{"node1", "node2", "node3"}

// podmanSite starts a cluster whose user has Podman with the storage driver overlay
// and no other settings, and the archive of an image.
func podmanSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	archive, err := os.ReadFile("/var/lib/berth-engines/base-docker-archive.tar")
	if err != nil {
		t.Skip("the base image is not there as a file" + e2etest.Help)
	}
	if _, err = exec.LookPath("podman"); err != nil {
		t.Skipf("podman is not installed%s", e2etest.Help)
	}
	e2etest.Must(t, os.WriteFile(filepath.Join(s.shared, "base.tar"), archive, 0o644)) //nolint:gosec // everybody may read it
	e2etest.Must(t, e2etest.Build(filepath.Join(filepath.Dir(s.script), ".."), filepath.Join(s.shared, "bin"), "./agents/minisweagent", "./agents/scaffolds", "./environments/podman"))
	s.on("login", `mkdir -p ~/.config/containers && printf '[storage]\ndriver = "overlay"\n' > ~/.config/containers/storage.conf`)
	return s
}

// boxes writes an experiment on Podman over n repetitions of a task whose image is in an
// archive. Attempts of the oracle take s.work seconds.
func (s *site) boxes(name, archive, agents string, n int, executor string) {
	s.t.Helper()
	dir := filepath.Join(s.shared, name)
	e2etest.Write(s.t, dir, map[string]string{
		"tasks/box/task.toml": fmt.Sprintf(`schema_version = "1.4"
[task]
name = "e2e/box"
version = "1.0.0"
[agent]
timeout_sec = 300
[verifier]
timeout_sec = 60
[environment]
docker_image = "docker-archive:%s"
network_mode = "no-network"
workdir = "/app"
`, archive),
		"tasks/box/instruction.md":    "Do it.\n",
		"tasks/box/solution/solve.sh": fmt.Sprintf("#!/bin/sh\nsleep %d\n%s\n", s.work, seesNetwork),
		"tasks/box/tests/test.sh":     "#!/bin/sh\nif [ \"$(cat /app/done)\" = lo ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
		"berth.hcl": fmt.Sprintf(`experiment "boxes" {
  datasets    = [dataset.tasks]
  environment = environment.podman
  model       = model.m
  repeat      = %d
  matrix {
    agent = [%s]
  }
  retry {
    max  = 20
    on   = ["preempted"]
    wait = "0s"
  }
}
dataset "tasks" {
  format = "harbor"
  path   = "./tasks"
}
environment "podman" {
  plugin = "podman"
}
agent "oracle" {
  plugin = "oracle"
  oracle = true
}
agent "nop" {
  plugin = "nop"
}
agent "loop" {
  plugin = "minisweagent"
}
model "m" {
  provider = "openai-chat"
  name     = "m1"
  base_url = "http://%s/v1"
  api_key  = secret("E2E_PODMAN_KEY")
}
%s`, n, agents, providerAt, executor),
	})
	e2etest.Must(s.t, exec.CommandContext(s.t.Context(), "chmod", "-R", "go-w", dir).Run())
	user := strings.TrimSpace(s.on("login", "id -un"))
	e2etest.Must(s.t, exec.CommandContext(s.t.Context(), "chown", "-R", user, dir).Run())
	s.env = "E2E_PODMAN_KEY=" + providerKey
}

// asRoot returns what a shell command of root prints on a node.
func (s *site) asRoot(node, command string) string {
	s.t.Helper()
	out, err := s.run(time.Minute, "exec", "--root", node, "--", "sh", "-c", command)
	if err != nil {
		s.t.Fatalf("on %s: %s: %v\n%s", node, command, err, out)
	}
	return strings.TrimSpace(out)
}

// left lists what Podman and pilots have on a node: processes of the user, storage and
// sockets of jobs, and mounts.
func (s *site) left(node string) (all []string) {
	s.t.Helper()
	user := strings.TrimSpace(s.on("login", "id -un"))
	all = strings.FieldsFunc(s.asRoot(node, "pgrep -u "+user+` -a | cut -c1-120
find /srv/scratch -mindepth 2 ! -path '*/podman' ! -path '*/podman/images*' ! -path '*/podman/jobs' ! -path '*/podman/jobs.flock'
find /tmp/berth-* -maxdepth 1 -name 'j*' 2> /dev/null
find /dev/shm/berth-*/p /dev/shm/berth-*/s -mindepth 1 2> /dev/null
grep -E ' (/srv/scratch|/tmp)/' /proc/self/mountinfo; true`), func(r rune) bool { return r == '\n' })
	return all
}

// vacated waits until no job is left, and checks that nothing of pilots is left on a
// node, without a call of gc.
func (s *site) vacated() {
	s.t.Helper()
	s.noJobs()
	for _, node := range nodes {
		if left := s.left(node); len(left) > 0 {
			s.t.Errorf("left on %s:\n%s", node, strings.Join(left, "\n"))
		}
	}
}

// noJobs waits until no job is left.
func (s *site) noJobs() {
	s.t.Helper()
	s.await("no job is left", func() bool { return strings.TrimSpace(s.on("login", "squeue --noheader")) == "" })
}

// shown returns what `berth show` says of the only run.
func (s *site) shown(name string) (shown output.ShowRun) {
	s.t.Helper()
	out := s.on("login", fmt.Sprintf("cd %s/%s && ../bin/berth show last --json", s.shared, name))
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	return shown
}

// folder returns the folder of the only run.
func (s *site) folder(name string) string {
	s.t.Helper()
	runs := e2etest.Found(s.t, 1, s.shared, name, "runs", "*-*")
	return runs[0]
}

// With one block more in its file, a run on Podman goes to the cluster, and is the same
// as on the login node alone. While its pilots work, squeue and berth show say the same,
// and jobs on one node share nothing.
func TestPodmanOnNodes(t *testing.T) { //nolint:paralleltest // the cluster is shared
	s := podmanSite(t)
	s.work = 1
	asked := s.provider()
	const name, repeat, held = "boxes", 4, 4
	agents, archive := "agent.oracle, agent.nop, agent.loop", filepath.Join(s.shared, "base.tar")
	s.boxes(name, archive, agents, repeat, "")
	if out := s.berth(name, "run .; echo code $?"); !strings.Contains(out, "code 0") {
		t.Fatalf("%s", out)
	}
	alone := filepath.Join(s.shared, name, "alone")
	e2etest.Must(t, os.Rename(s.folder(name), alone))
	before := s.requests(asked)
	// Pilots would find the image there. On other sites the home is on a shared disk,
	// where they do not look.
	s.on("login", "podman unshare rm -rf ~/.local/share/containers; podman system migrate")

	for _, node := range nodes { // where Podman unpacks archives by default; they have 2 MiB
		s.root(node, "for dir in /tmp /var/tmp; do mount -t tmpfs -o size=1m,mode=1777 tmpfs $dir; done")
	}
	mounts := s.mounts()
	e2etest.Must(t, os.WriteFile(filepath.Join(asked, heldFile), nil, 0o644)) //nolint:gosec // the provider reads it
	// Four pilots on three nodes: two of them share one. They have the podman of a module.
	e2etest.Write(t, filepath.Join(s.shared, "module"), map[string]string{"podman": "#!/bin/sh\n: > /tmp/module\nexec /usr/bin/podman \"$@\"\n"})
	block := strings.NewReplacer("workers    = 3", "workers    = 4\n  setup      = \"PATH="+s.shared+"/module:$PATH\"", "in_flight  = 2", "in_flight  = 1").Replace(executor("requeue"))
	s.boxes(name, archive, agents, repeat, block)
	run := s.start(name, "run .")
	s.await("all pilots wait for the model", func() bool { return s.requests(asked)-before == held })
	s.sideBySide(name)
	s.apart()
	s.keyIsNotOnNodes()
	e2etest.Must(t, os.Remove(filepath.Join(asked, heldFile)))
	if code, out := run.wait(); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	s.vacated()
	if after := s.mounts(); after != mounts {
		t.Errorf("mounts before:\n%s\nafter:\n%s", mounts, after)
	}

	made := map[string]int{}
	for at, r := range e2etest.SameRun(t, alone, s.folder(name)) {
		made[r.Worker.Node]++
		if want := map[bool]record.Outcome{true: record.Failed, false: record.Passed}[r.Cell["agent"] == "nop"]; r.Outcome != want {
			t.Errorf("%s of %v: %s, %+v", at, r.Cell, r.Outcome, r.Error)
		}
	}
	if len(made) != len(nodes) {
		t.Errorf("attempts by node: %v", made)
	}
	for _, node := range nodes {
		if s.on(node, "ls /tmp/module") == "" {
			t.Errorf("%s did not use the podman that setup names", node)
		}
	}
	if all := s.requests(asked); before != 2*repeat || all != 2*before {
		t.Errorf("%d requests alone, %d with those of pilots", before, all)
	}
	if found := s.on("login", fmt.Sprintf("grep -rls %s %s/%s; true", providerKey, s.shared, name)); found != "" {
		t.Errorf("the key is in files of the run: %s", found)
	}
	t.Logf("attempts by node: %v", made)
}

// requests counts the requests to the provider. None of them may lack the key.
func (s *site) requests(dir string) int {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, countsFile))
	e2etest.Must(s.t, err)
	lines := strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
	for _, l := range lines {
		if !strings.HasSuffix(l, " 0") {
			s.t.Fatalf("requests without the key: %q", lines)
		}
	}
	return len(lines)
}

// sideBySide checks that Slurm and Berth name the same jobs on the same nodes.
func (s *site) sideBySide(name string) {
	s.t.Helper()
	var slurm, berth []string
	for line := range strings.Lines(s.on("login", "squeue --noheader --array --states=R --format='%i %N'")) {
		slurm = append(slurm, strings.TrimSpace(line))
	}
	for _, p := range s.shown(name).Pilots {
		if p.State == output.PilotWorks {
			berth = append(berth, p.Job+" "+p.Node)
		}
	}
	slices.Sort(slurm)
	slices.Sort(berth)
	if len(slurm) != 4 || !slices.Equal(slurm, berth) {
		s.t.Errorf("squeue says %q, berth show %q", slurm, berth)
	}
}

// apart checks that each job has a Podman of its own, with one container that no other
// job sees, also where two jobs are on one node.
func (s *site) apart() {
	s.t.Helper()
	most := 0
	for _, node := range nodes {
		sockets := strings.Fields(s.on(node, "ls /tmp/berth-*/j*.sock"))
		most = max(most, len(sockets))
		seen := map[string]bool{}
		for _, socket := range sockets {
			for _, own := range s.things(node, socket) {
				if own == "" || seen[own] {
					s.t.Errorf("%s: two jobs have %q", node, own)
				}
				seen[own] = true
			}
		}
		if names := strings.Fields(s.on(node, "grep -o 'localhost/berth/archive:[^\"]*' /srv/scratch/berth-*/podman/images/overlay/overlay-images/images.json | sort -u")); len(names) != 1 {
			s.t.Errorf("%s: the archive was loaded as %q", node, names)
		}
	}
	if most < 2 {
		s.t.Errorf("at most %d jobs on a node: the test proves little", most)
	}
}

// things returns what belongs to the Podman behind a socket: its only container and its
// folders.
func (s *site) things(node, socket string) []string {
	s.t.Helper()
	var info struct {
		Store struct{ GraphRoot, RunRoot, VolumePath string }
	}
	var list []struct {
		ID string `json:"Id"`
	}
	for path, into := range map[string]any{"info": &info, "containers/json?all=true": &list} {
		out := s.on(node, fmt.Sprintf("curl -fsS --unix-socket %s 'http://d/v4.0.0/libpod/%s'", socket, path))
		if err := json.Unmarshal([]byte(out), into); err != nil {
			s.t.Fatalf("%s of %s: %v\n%s", path, socket, err, out)
		}
	}
	if len(list) != 1 || !strings.HasPrefix(info.Store.GraphRoot, "/srv/scratch/") {
		s.t.Fatalf("%s: %s has containers %v in %+v", node, socket, list, info.Store)
	}
	return []string{list[0].ID, info.Store.GraphRoot, info.Store.RunRoot, info.Store.VolumePath}
}

// keyIsNotOnNodes looks for the key of the model in the arguments and environments of
// all processes and in all files of nodes.
func (s *site) keyIsNotOnNodes() {
	s.t.Helper()
	look := fmt.Sprintf("grep -ls %s[%s] /proc/[0-9]*/environ /proc/[0-9]*/cmdline; grep -rls %s[%s] /srv/scratch /tmp /dev/shm /run/user /home; true",
		providerKey[:len(providerKey)-1], providerKey[len(providerKey)-1:], providerKey[:len(providerKey)-1], providerKey[len(providerKey)-1:])
	for _, node := range nodes {
		if found := s.asRoot(node, look); found != "" {
			s.t.Errorf("the key is on %s: %s", node, found)
		}
	}
	if s.asRoot("login", look) == "" {
		s.t.Error("the key is not seen on the login node, whose coordinator has it: the test proves nothing")
	}
}
