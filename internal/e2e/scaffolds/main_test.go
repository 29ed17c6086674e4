package scaffolds

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	root    string // of the tree
	binary  string // bin/berth in it
	bundles string // folder of the bundles, kept from run to run
	local   string // why no sandbox can be made here, or empty
)

// always are the scaffolds that are tried when BERTH_TEST_SCAFFOLDS does not
// say which: it is a list of names, or "all".
var always = []string{"claude-code", "codex", "pi"}

func TestMain(m *testing.M) { os.Exit(setUp(m)) }

func setUp(m *testing.M) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "scaffolds:", err)
		return 1
	}
	var err error
	if root, err = filepath.Abs("../../.."); err != nil {
		return fail(err)
	}
	build := exec.Command(filepath.Join(root, "scripts", "build")) //nolint:noctx // before any test there is no context
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, buildErr := build.CombinedOutput(); buildErr != nil {
		return fail(fmt.Errorf("%w\n%s", buildErr, out))
	}
	binary = filepath.Join(root, "bin", "berth")
	bundles = "/var/tmp/berth-test/bundles" // which another user of the machine can read, too
	if d := os.Getenv("BERTH_TEST_BUNDLES"); d != "" {
		bundles = d
	}
	runtime, err := os.MkdirTemp("/tmp", "bsc")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(runtime) }()
	if err = errors.Join(os.Setenv("BERTH_RUNTIME_DIR", runtime), os.Setenv("BERTH_BUNDLES", bundles)); err != nil {
		return fail(err)
	}
	out, err := exec.Command(binary, "doctor").CombinedOutput() //nolint:noctx // the same
	if err != nil {
		local = fmt.Sprintf("no sandbox can be made here: %s", out)
	}
	return m.Run()
}

// berth runs the program in dir.
func berth(t *testing.T, dir string, args ...string) (code int, out, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(os.Environ(), "NO_COLOR=1"), 10*time.Second
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, &e)
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// unreachable are the words of npm, apt and pip for a registry that is not
// there.
var unreachable = regexp.MustCompile(`ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED|ENETUNREACH|ECONNRESET|Temporary failure|Could not resolve|Could not connect|Failed to establish|permission denied|is not on this machine|are not on this machine`)

var made sync.Map // name → func() string, once a process

// needs skips the test unless a scaffold is to be tried and its bundle can be
// had.
func needs(t *testing.T, s scaffold) {
	t.Helper()
	wanted := always
	if w := os.Getenv("BERTH_TEST_SCAFFOLDS"); w != "" {
		wanted = strings.Fields(w)
	}
	if !slices.Contains(wanted, s.name) && !slices.Contains(wanted, "all") {
		t.Skipf("%s is tried by `make test-scaffolds`", s.name)
	}
	if local != "" {
		t.Skip(local)
	}
	bundled(t, s)
}

// bundled skips the test unless the scaffold's bundle can be had. It says which
// version is tried.
func bundled(t *testing.T, s scaffold) {
	t.Helper()
	once, _ := made.LoadOrStore(s.name, sync.OnceValues(func() (string, string) {
		what := s.bundle
		if len(what) == 0 {
			what = []string{s.name}
		}
		code, out, stderr := berth(t, t.TempDir(), append([]string{"agent", "bundle"}, what...)...)
		if code != 0 {
			return "", stderr
		}
		return out, ""
	}))
	get, ok := once.(func() (string, string))
	if !ok {
		t.Fatal("no bundle")
	}
	version, wrong := get()
	switch {
	case wrong != "" && unreachable.MatchString(wrong):
		t.Skipf("the bundle of %s is not here, and its packages cannot be had: %s", s.name, wrong)
	case wrong != "":
		t.Fatalf("bundle of %s: %s", s.name, wrong)
	}
	t.Logf("runs %s", version)
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil { //nolint:gosec // scripts
			t.Fatal(err)
		}
	}
}
