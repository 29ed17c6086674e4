package bundler_test

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/agents/scaffolds/bundler"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent/bundle"
)

func TestLatestIsTheNewestVersionOfTheRegistry(t *testing.T) {
	count := registry(t, script(t))
	t.Setenv("FAKE_NPM_NEWEST", "1.3.0")
	dir := t.TempDir()
	var said []string
	o := order(dir)
	o.Version, o.Log = bundler.Latest, func(line string) { said = append(said, line) }
	b, err := bundler.Make(t.Context(), o)
	if err != nil || b.ID() != "thing@1.3.0" || !slices.Contains(said, "the newest version is thing@1.3.0") {
		t.Errorf("%s, %v; said %q", b.ID(), err, said)
	}
	if asked, unread := os.ReadFile(count + ".view"); unread != nil || !strings.Contains(string(asked), "-- thing@latest version") {
		t.Errorf("npm was asked %q, %v", asked, unread)
	}
	o.Recipe.NPM = []string{"thing@1.2.3"}
	if _, err := bundler.Make(t.Context(), o); err == nil || !strings.Contains(err.Error(), "name a version instead of latest") {
		t.Errorf("a recipe whose packages have versions of their own: %v", err)
	}
}

// A registry that takes connections and says nothing is named, by the real
// clients, before a user gives up.
func TestARegistryThatIsSilentIsNamed(t *testing.T) {
	testlevel.Long(t, "test-scaffolds")
	var l net.ListenConfig
	s, err := l.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	address := "http://" + s.Addr().String()
	t.Setenv("PIP_DEFAULT_TIMEOUT", "2")
	for client, tt := range map[string]struct {
		variable string
		recipe   bundle.Recipe
	}{
		"npm":     {"npm_config_registry", bundle.Recipe{NPM: []string{"thing@{version}"}}},
		"python3": {"PIP_INDEX_URL", bundle.Recipe{PyPI: []string{"thing=={version}"}}},
	} {
		t.Run(client, func(t *testing.T) {
			testlevel.Program(t, client, client)
			t.Setenv(tt.variable, address+"/")
			for _, version := range []string{"1.2.3", bundler.Latest} {
				began := time.Now()
				_, err := bundler.Make(t.Context(), bundler.Order{Dir: t.TempDir(), Name: "thing", Version: version, Recipe: tt.recipe})
				if err == nil || !strings.Contains(err.Error(), address+"/ does not answer: set "+tt.variable) || time.Since(began) > 90*time.Second { // the promise: before a user gives up
					t.Errorf("version %s, after %s: %v", version, time.Since(began), err)
				}
				t.Logf("version %s: %s", version, time.Since(began))
			}
		})
	}
}
