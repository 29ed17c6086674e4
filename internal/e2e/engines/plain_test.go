package engines

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// plain is a user without ranges of subordinate ids, made by
// scripts/engines-for-tests. Its home has copies of the programs.
type plain struct {
	test     *testing.T
	uid, gid uint32
	dir      string
}

func newPlain(t *testing.T) *plain {
	t.Helper()
	testlevel.Root(t, "be another user")
	name := cmp.Or(os.Getenv("BERTH_TEST_USER"), "berth-ci") + "-plain"
	u, err := user.Lookup(name)
	if err != nil {
		t.Skipf("there is no user %s, who has no ranges of ids%s", name, e2etest.Help)
	}
	uid, wrong := strconv.ParseUint(u.Uid, 10, 32)
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err = errors.Join(wrong, err); err != nil {
		t.Fatal(err)
	}
	p := &plain{test: t, uid: uint32(uid), gid: uint32(gid), dir: short(t)}
	t.Cleanup(func() {
		if text, missing := os.ReadFile(p.dir + "/x/libpod/tmp/pause.pid"); missing == nil {
			if pid, bad := strconv.Atoi(strings.TrimSpace(string(text))); bad == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL) // Podman's own process, which keeps the namespaces of a user
			}
		}
	})
	if err := os.CopyFS(filepath.Join(p.dir, "bin"), os.DirFS(bin)); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"x", "tmp", "containers"} {
		if err := os.Mkdir(filepath.Join(p.dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{
		"containers.conf": "[engine]\nevents_logger = \"file\"\ncgroup_manager = \"cgroupfs\"\nruntime = \"runc\"\n",
		"storage.conf": fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n[storage.options.overlay]\nignore_chown_errors = \"true\"\n",
			p.dir+"/root", p.dir+"/run"),
	} {
		if err := os.WriteFile(filepath.Join(p.dir, "containers", file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// run runs berth as the user, in its own namespace if wanted, and returns its
// output and exit code.
func (p *plain) run(dir string, namespace bool, args ...string) (out string, code int) {
	t := p.test
	t.Helper()
	err := filepath.WalkDir(p.dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(p.uid), int(p.gid))
	})
	if err != nil {
		t.Fatal(err)
	}
	argv := append([]string{filepath.Join(p.dir, "bin", "berth")}, args...)
	if namespace {
		argv = append([]string{"unshare", "--user", "--map-root-user"}, argv...)
	}
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + p.dir, "XDG_RUNTIME_DIR=" + p.dir + "/x", "XDG_CONFIG_HOME=" + p.dir,
		"TMPDIR=" + p.dir + "/tmp", "LANG=C.UTF-8", "NO_COLOR=1",
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: p.uid, Gid: p.gid}}
	text, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// check is a result of doctor.
func check(t *testing.T, text, name string) output.DoctorCheck {
	t.Helper()
	var d output.Doctor
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	i := slices.IndexFunc(d.Checks, func(c output.DoctorCheck) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("doctor says nothing of %s:\n%s", name, text)
	}
	return d.Checks[i]
}

// Doctor tells root, a user without ranges of ids, and root of a namespace
// without ranges what each of them can do here. The answers differ.
func TestDoctorTellsWhoHasWhichIDs(t *testing.T) {
	t.Parallel()
	p := newPlain(t)
	root := newPlace(t)
	s := root.start("doctor", "--json")
	root.end(s)
	if c := check(t, s.out.String(), "user ids"); c.Remedy != "" || !strings.Contains(c.Text, "root gives each sandbox its own ids") {
		t.Errorf("root: %+v", c)
	}
	text, _ := p.run(p.dir, false, "doctor", "--json")
	if c := check(t, text, "user ids"); !strings.Contains(c.Text, "0 subordinate user ids") || !strings.Contains(c.Remedy, "usermod --add-subuids") {
		t.Errorf("a user without ranges: %+v", c)
	}
	text, code := p.run(p.dir, true, "doctor", "--json")
	if code != 0 && !strings.HasPrefix(text, "{") {
		testlevel.Cannot(t, testlevel.NoNamespaces, text)
	}
	if c := check(t, text, "user ids"); !strings.Contains(c.Text, "namespace that has 1 of") || !strings.Contains(c.Remedy, "outside") {
		t.Errorf("root of a namespace: %+v", c)
	}
}

// Without ranges of ids, a sandbox of Podman has a single user. A task with
// another user is refused with the reason; a task without one runs.
func TestAUserWithoutRangesOfIDsRunsWhatNeedsOne(t *testing.T) {
	t.Parallel()
	p := newPlain(t)
	if _, err := exec.LookPath("podman"); err != nil {
		t.Skip("podman is not installed: run scripts/engines-for-tests as root to have it tried")
	}
	work := &place{test: t, dir: filepath.Join(p.dir, "w")}
	for name, user := range map[string]string{"plain": "", "users": "[agent]\nuser = \"agent\"\n"} {
		dir := filepath.Join("tasks", name)
		work.write(filepath.Join(dir, "task.toml"), "schema_version = \"1.4\"\n[task]\nname = \"engines/"+name+"\"\n"+user+
			"[environment]\ndocker_image = \"docker-archive:"+archive+"\"\nnetwork_mode = \"no-network\"\nworkdir = \"/app\"\n")
		work.write(filepath.Join(dir, "instruction.md"), "Do it.\n")
		work.write(filepath.Join(dir, "solution", "solve.sh"), "#!/bin/sh\n"+solveTiny+"\n")
		work.write(filepath.Join(dir, "tests", "test.sh"), "#!/bin/sh\n"+testTiny+"\n")
	}
	work.experiment("podman", "", "")
	if text, code := p.run(work.dir, false, "doctor"); !strings.Contains(text, "environment podman: Podman") {
		testlevel.Cannot(t, "Podman does not work for a user without ranges of ids here: bin/berth doctor says why", fmt.Sprintf("exit code %d\n%s", code, text))
	}
	if text, code := p.run(work.dir, false, "run", ".", "--no-live"); code != 2 || !strings.Contains(text, `task engines/users: The task needs a second user, "agent"`) {
		t.Errorf("a task with a second user: exit code %d\n%s", code, text)
	}
	if text, code := p.run(work.dir, false, "run", ".", "--no-live", "--skip-refused"); code != 0 || !strings.Contains(text, "engines/plain  oracle  1  passed") {
		t.Errorf("a task without: exit code %d\n%s", code, text)
	}
	if text, code := p.run(work.dir, false, "gc"); code != 0 || !strings.Contains(text, "nothing to remove") {
		t.Errorf("gc: exit code %d\n%s", code, text)
	}
	for _, pid := range processes("podman", p.dir) {
		t.Errorf("a server of Podman is left: %d", pid)
	}
}
