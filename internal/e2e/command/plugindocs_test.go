package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// What docs/plugin-authors.md says to type makes a verifier, and an experiment
// with the block of the page is judged by it.
func TestTheVerifierOfTheDocumentsJudges(t *testing.T) {
	tree.NeedsSandbox(t)
	t.Parallel()
	page := e2etest.Read(t, tree.Root, "docs", "plugin-authors.md")
	_, rest, found := strings.Cut(page, "\n## In an afternoon\n")
	script := strings.Join(listings(rest)[0], "\n")
	block := hclBlock.FindStringSubmatch(page)
	if !found || block == nil || !strings.Contains(block[1], `plugin = "exact"`) {
		t.Fatalf("the page has no commands, or no block for the verifier: %q", block)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
	cmd.Dir = dir
	// The reader's modules are those of this checkout, which are known; compiled as all
	// else here, so that little is compiled anew.
	cmd.Env = append(os.Environ(), "BERTH="+tree.Root, "GOFLAGS=-buildvcs=false -trimpath -modcacherw", "GONOSUMDB=*", "NO_COLOR=1")
	cmd.Env = append(cmd.Env, ownModules(t)...)
	out, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(out), "no such host") {
		testlevel.Cannot(t, "the modules of a plugin are not all here: run the test with a network", string(out))
	}
	if err != nil || !strings.Contains(string(out), " 0 failed") {
		t.Fatalf("%v\n%s\nof\n%s", err, out, script)
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

// ownModules returns variables for a module cache of the test's own, filled from the
// usual one, if that may not be written: `go mod tidy` of another module needs
// modules that this one does not.
func ownModules(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY").Output()
	e2etest.Must(t, err)
	lines := strings.Split(string(out), "\n")
	downloads := filepath.Join(lines[0], "cache", "download")
	if unix.Access(downloads, unix.W_OK) == nil {
		return nil
	}
	return []string{"GOMODCACHE=" + t.TempDir(), "GOPROXY=file://" + downloads + "," + lines[1]}
}

// listings returns the blocks of indented lines of a text, without the indent.
func listings(text string) (blocks [][]string) {
	before := false
	for line := range strings.Lines(text) {
		code, ok := strings.CutPrefix(line, "    ")
		if ok && !before {
			blocks = append(blocks, nil)
		}
		if before = ok; ok {
			blocks[len(blocks)-1] = append(blocks[len(blocks)-1], strings.TrimSuffix(code, "\n"))
		}
	}
	return blocks
}
