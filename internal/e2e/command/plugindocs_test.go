package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// What docs/plugin-authors.md says to type makes a verifier, and an experiment
// with the block of the page is judged by it.
func TestTheVerifierOfTheDocumentsJudges(t *testing.T) {
	tree.NeedsSandbox(t)
	t.Parallel()
	page := e2etest.Read(t, tree.Root, "docs", "plugin-authors.md")
	_, rest, found := strings.Cut(page, "\n## In an afternoon\n")
	var script strings.Builder
	for line := range strings.Lines(rest) {
		if strings.HasPrefix(line, "    ") {
			script.WriteString(line)
		} else if script.Len() > 0 {
			break
		}
	}
	block := hclBlock.FindStringSubmatch(page)
	if !found || block == nil || !strings.Contains(block[1], `plugin = "exact"`) {
		t.Fatalf("the page has no commands, or no block for the verifier: %q", block)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script.String())
	cmd.Dir = dir
	// The reader's modules are those of this checkout, which are known.
	cmd.Env = append(os.Environ(), "BERTH="+tree.Root, "GOFLAGS=-buildvcs=false", "GONOSUMDB=*", "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(out), "no such host") {
		t.Skipf("the modules of a plugin are not all here, and cannot be downloaded:\n%s", out)
	}
	if err != nil || !strings.Contains(string(out), " 0 failed") {
		t.Fatalf("%v\n%s\nof\n%s", err, out, script.String())
	}

	task(t, filepath.Join(dir, "tasks"), "answer", "echo 42 > answer.txt")
	own := filepath.Join(dir, "tasks", "answer")
	e2etest.Write(t, own, map[string]string{
		"tests/answer.txt": "42\n",
		"task.toml":        "artifacts = [{ source = \"answer.txt\", destination = \"answer.txt\" }]\n" + e2etest.Read(t, own, "task.toml"),
		"tests/test.sh":    "exit 1\n", // of the verifier that is replaced
	})
	experiment(t, dir, "agent.oracle, agent.nop", "")
	e2etest.Write(t, dir, map[string]string{"verifier.hcl": block[1]})
	run := exec.CommandContext(t.Context(), filepath.Join(tree.Root, "bin", "berth"), "run")
	run.Dir = dir
	run.Env = append(os.Environ(), "BERTH_PLUGIN_PATH="+filepath.Join(dir, "my-plugin"), "NO_COLOR=1")
	out, err = run.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "2 trials planned = 1 passed + 1 failed") {
		t.Errorf("%v\n%s", err, out)
	}
}
