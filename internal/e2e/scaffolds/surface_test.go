package scaffolds

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/surface"
)

// Claude Code, without a network, plays a game in which the core stands between
// it and the surface: it finds the actions as tools of an MCP server.
func TestACLIActsOnASurface(t *testing.T) {
	t.Parallel()
	s := scaffolds[0]
	needs(t, s)
	dir := t.TempDir()
	pythonPlugins(t, dir)
	e2etest.Must(t, os.CopyFS(filepath.Join(dir, "tasks"), os.DirFS(filepath.Join(tree.Root, "examples", "surface", "tasks"))))
	replies := "replies:\n"
	for i, cell := range []string{"row: 1, column: 1", "row: 0, column: 0", "row: 2, column: 2"} {
		replies += reply(i, "text: I place it., tools: [{name: mcp__surface__place, arguments: {"+cell+"}}]")
	}
	e2etest.Write(t, dir, map[string]string{
		"replies.yaml": replies + reply(3, done),
		"experiment.hcl": fmt.Sprintf(`experiment "tools" {
  datasets    = [dataset.games]
  environment = environment.table
  agent       = agent.it
  model       = model.m
}
dataset "games" {
  format = "harbor"
  path   = "tasks"
}
environment "table" {
  plugin  = "local"
  surface = "tictactoe"
  network = "none"
}
agent "it" {
  plugin = %q
}
model "m" {
  provider = "script"
  name     = "claude-opus-4-8"
  script   = "replies.yaml"
}
`, s.name),
	})
	cmd, out, stderr := tree.Command(t, dir, "run", "--require", "passed = planned")
	cmd.Env = append(cmd.Env, "BERTH_PLUGIN_PATH="+filepath.Join(dir, "plugins"))
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, stderr)
	}
	attempts := e2etest.Found(t, 1, dir, "runs", "*", "trials", "*", "attempt-1")
	acted := 0
	for _, l := range e2etest.Lines[surface.Line](t, attempts[0], record.SurfaceFile) {
		if l.Kind == surface.KindAct && l.Error == "" && l.Reward != nil && len(l.Frames) == 1 {
			acted++
		}
	}
	if acted != 3 {
		t.Errorf("%d actions with a reward and a frame in the record, want 3", acted)
	}
	if steps := e2etest.Read(t, attempts[0], record.StepsFile); !strings.Contains(steps, "mcp__surface__place") || strings.Contains(steps, "winner") {
		t.Errorf("the agent's steps have no call of the tool, or what it must not see:\n%s", steps)
	}
}

// pythonPlugins puts the game of examples/surface and its verifier into
// dir/plugins.
func pythonPlugins(t *testing.T, dir string) {
	t.Helper()
	testlevel.PluginsInPython(t)
	for _, name := range []string{"berth-plugin-tictactoe", "berth-plugin-won"} {
		text := e2etest.Read(t, tree.Root, "examples", "plugins-python", name, name)
		folder := filepath.Join(dir, "plugins", name)
		e2etest.Write(t, folder, map[string]string{name: strings.Replace(text, "/usr/bin/env python3", "/usr/bin/python3", 1)})
		e2etest.Must(t, os.Chmod(filepath.Join(folder, name), 0o755)) //nolint:gosec // a program
		e2etest.Must(t, os.CopyFS(filepath.Join(folder, "berth_plugin"), os.DirFS(filepath.Join(tree.Root, "python", "berth_plugin"))))
	}
}
