package command

import (
	"os"
	"slices"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// registry is an npm whose registry has one package.
const registry = `#!/bin/sh
case $1 in
ping) exit ;;
view) echo '"1.3.0"'; exit ;;
esac
sleep 1
mkdir -p node_modules/thing
echo '#!/bin/sh' >node_modules/thing/program
echo '{"packages": {"node_modules/thing": {"version": "1.2.3", "integrity": "sha512-abc"}}}' >package-lock.json
`

// A build hears of a newer version, and the list has it without asking. A registry
// that does not answer is only named.
func TestNewerVersionsOfBundlesAreListed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e2etest.Write(t, dir, map[string]string{"with/npm": registry})
	run := func(path string, args ...string) result {
		cmd, out, stderr := tree.Command(t, dir, args...)
		cmd.Env = append(cmd.Env, "BERTH_BUNDLES="+dir+"/bundles", "PATH="+path, "npm_config_registry=http://127.0.0.1:9/", "PIP_INDEX_URL=http://127.0.0.1:9/")
		return ended(t, cmd, cmd.Run(), out, stderr)
	}
	path := dir + "/with:" + os.Getenv("PATH")
	r := run(path, "agent", "bundle", "thing@1.2.3", "--npm", "thing@{version}", "--link", "thing=npm/node_modules/thing/program")
	r.want(t, 0)
	if !strings.Contains(r.stderr, "a newer version exists: thing@1.3.0\n") {
		t.Errorf("build: %+v", r)
	}
	r = run("/nowhere", "agent", "list")
	r.want(t, 0)
	if !strings.Contains(r.out, "newer: thing@1.3.0 (berth agent bundle thing@1.3.0)\n") || r.stderr != "" {
		t.Errorf("list: %+v", r)
	}
	r = run("/nowhere", "agent", "list", "--json")
	r.want(t, 0)
	list := answer[types.AgentList](t, r, "cli-agent-list")
	if !slices.Equal(list.Newer, []string{"thing@1.3.0"}) {
		t.Errorf("list as JSON: %+v", list)
	}
}
