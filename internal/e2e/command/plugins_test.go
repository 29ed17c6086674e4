package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// pythonPlugin writes the folder of a plugin in Python into dir/plugins, which
// berthWith searches.
func pythonPlugin(t *testing.T, dir, name, text string) {
	t.Helper()
	testlevel.PluginsInPython(t)
	folder := filepath.Join(dir, "plugins", "berth-plugin-"+name)
	e2etest.Write(t, folder, map[string]string{"berth-plugin-" + name: text})
	e2etest.Must(t, os.Chmod(filepath.Join(folder, "berth-plugin-"+name), 0o755)) //nolint:gosec // a program
	e2etest.Must(t, os.CopyFS(filepath.Join(folder, "berth_plugin"), os.DirFS(filepath.Join(tree.Root, "python", "berth_plugin"))))
}

// berthWith runs berth with the plugins in dir/plugins, and further variables.
func berthWith(t *testing.T, dir string, env []string, args ...string) result {
	t.Helper()
	cmd, out, stderr := tree.Command(t, dir, args...)
	cmd.Env = append(append(cmd.Env, "BERTH_PLUGIN_PATH="+filepath.Join(dir, "plugins")), env...)
	return ended(t, cmd, cmd.Run(), out, stderr)
}

const judge = `#!/usr/bin/python3
from berth_plugin import Verifier, serve

class Judge(Verifier):
    name = "judge"

    def verify(self, request):
        return True

serve(Judge())
`

const judged = `
experiment "judged" {
  datasets = [dataset.d]
  agent    = agent.nop
}
dataset "d" {
  format = "harbor"
  path   = "tasks"
}
agent "nop" {
  plugin = "nop"
}
verifier "script" {
  plugin = "judge"
}
`

// A plugin is installed from a folder or an archive, locked, and refused if it has
// changed since.
func TestAPluginIsInstalledAndLocked(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	pythonPlugin(t, dir, "judge", judge)
	task(t, filepath.Join(dir, "tasks"), "one", "true")
	e2etest.Write(t, dir, map[string]string{"berth.hcl": judged, "plain": "text\n"})
	data := filepath.Join(dir, "data")
	with := func(args ...string) result {
		cmd, out, stderr := tree.Command(t, dir, args...)
		cmd.Env = append(cmd.Env, "XDG_DATA_HOME="+data)
		return ended(t, cmd, cmd.Run(), out, stderr)
	}
	made := answer[types.PluginInstall](t, with("plugin", "install", "plugins/berth-plugin-judge", "--json"), "cli-plugin-install")
	installed := filepath.Join(data, "berth", "plugins", "berth-plugin-judge")
	if made.Path != installed || len(made.Plugins) != 1 || made.Plugins[0].Name != "judge" || !strings.HasPrefix(made.Plugins[0].Path, installed) {
		t.Errorf("installed: %+v", made)
	}
	r := with("plugin", "install", "plugins/berth-plugin-judge")
	if r.code != 2 || !strings.Contains(r.stderr, "--force") {
		t.Errorf("a second time: %+v", r)
	}
	with("plugin", "install", "plugins/berth-plugin-judge", "--force").want(t, 0)
	lock := answer[types.PluginLock](t, with("plugin", "lock", "--json"), "cli-plugin-lock")
	if lock.File != filepath.Join(dir, "berth.lock.hcl") || len(lock.Plugins) != 3 {
		t.Errorf("lock: %+v; want an agent, an environment and a verifier", lock)
	}
	with("validate").want(t, 0)
	module := filepath.Join(installed, "berth_plugin", "verifier.py")
	e2etest.Must(t, os.WriteFile(module, []byte(e2etest.Read(t, filepath.Dir(module), "verifier.py")+"# changed\n"), 0o600))
	for _, command := range []string{"validate", "plan", "run"} {
		r = with(command)
		if r.code != 2 || !strings.Contains(r.stderr, "Plugin differs from berth.lock.hcl") || !strings.Contains(r.stderr, `verifier "judge" is sha256:`) {
			t.Errorf("%s with a changed plugin: %+v", command, r)
		}
	}
	with("plugin", "lock").want(t, 0)
	with("validate").want(t, 0)
}
