package scaffolds

import (
	"fmt"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/plugins/surface"
)

// Claude Code, without a network, solves a level of Sokoban with the tools of the
// MCP server.
func TestACLIPlaysSokoban(t *testing.T) {
	t.Parallel()
	s := scaffolds[0]
	needs(t, s)
	dir := t.TempDir()
	replies := "replies:\n"
	for i := range 2 {
		replies += reply(i, "text: I push the box., tools: [{name: mcp__surface__Right, arguments: {}}]")
	}
	e2etest.Write(t, dir, map[string]string{
		"replies.yaml":      replies + reply(2, done),
		"levels/levels.txt": "; corridor\n######\n#@$ .#\n######\n",
		"experiment.hcl": fmt.Sprintf(`experiment "sokoban" {
  datasets    = [dataset.levels]
  environment = environment.room
  agent       = agent.it
  model       = model.m
}
dataset "levels" {
  format = "sokoban"
  path   = "levels"
}
environment "room" {
  plugin  = "local"
  surface = "sokoban"
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
	cmd, out, stderr := tree.Command(t, dir, "run")
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, stderr)
	}
	attempts := e2etest.Found(t, 1, dir, "runs", "*", "trials", "*", "attempt-1")
	var last surface.Line
	for _, l := range e2etest.Lines[surface.Line](t, attempts[0], record.SurfaceFile) {
		if l.Kind == surface.KindAct {
			last = l
		}
	}
	if !last.Done || last.Reward == nil || *last.Reward < 10 {
		t.Errorf("the last action is %+v, want one that solves the level", last)
	}
}
