package scaffolds

import (
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

var (
	tree    e2etest.Checkout
	bundles string // folder of the bundles, kept from run to run
)

// always are the scaffolds that are tested unless everything was asked for.
var always = []string{"claude-code", "codex", "pi"}

func TestMain(m *testing.M) {
	bundles = "/var/tmp/berth-test/bundles" // which another user of the machine can read, too
	if d := os.Getenv("BERTH_TEST_BUNDLES"); d != "" {
		bundles = d
	}
	if err := os.Setenv("BERTH_BUNDLES", bundles); err != nil {
		panic(err)
	}
	os.Exit(testlevel.Main("test-scaffolds", func() int { return tree.Main(m) }))
}

// unreachable matches the messages of npm, apt and pip if a registry cannot be
// reached.
var unreachable = regexp.MustCompile(`ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED|ENETUNREACH|ECONNRESET|Temporary failure|Could not resolve|Could not connect|Failed to establish|permission denied|is not on this machine|are not on this machine`)

var made sync.Map // name → func() string, once a process

// needs skips the test unless the scaffold is to be tested and its bundle is
// available.
func needs(t *testing.T, s scaffold) {
	t.Helper()
	if !testlevel.All() && !slices.Contains(always, s.name) {
		t.Skip("it takes long: run make test-scaffolds BERTH_TEST=all")
	}
	tree.NeedsSandbox(t)
	bundled(t, s)
}

// bundled skips the test unless the scaffold's bundle is available. It logs the
// version.
func bundled(t *testing.T, s scaffold) {
	t.Helper()
	once, _ := made.LoadOrStore(s.name, sync.OnceValues(func() (string, string) {
		what := s.bundle
		if len(what) == 0 {
			what = []string{s.name}
		}
		code, out, stderr := tree.Berth(t, t.TempDir(), append([]string{"agent", "bundle"}, what...)...)
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
		testlevel.Cannot(t, "the packages of the bundle of "+s.name+" cannot be downloaded: run the test with a network", wrong)
	case wrong != "":
		t.Fatalf("bundle of %s: %s", s.name, wrong)
	}
	t.Logf("runs %s", version)
}
