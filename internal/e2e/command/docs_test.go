package command

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

var (
	hclBlock = regexp.MustCompile("(?ms)^```hcl\n(.*?)^```")
	declared = regexp.MustCompile(`(?m)^(agent|model|environment|dataset) "(\w+)"`)
	axis     = regexp.MustCompile(`\bmatrix\.(\w+)`)
)

// whole completes a part of an experiment: it declares everything that the part
// uses.
func whole(block string) string {
	if strings.Contains(block, "experiment \"") {
		return block
	}
	used := map[string][]string{}
	for _, m := range declared.FindAllStringSubmatch(block, -1) {
		used[m[1]] = append(used[m[1]], m[1]+"."+m[2])
	}
	var b strings.Builder
	b.WriteString(block + "\nexperiment \"whole\" {\n  matrix {\n")
	for _, kind := range []string{"agent", "model", "environment", "dataset"} {
		if len(used[kind]) > 0 {
			fmt.Fprintf(&b, "    %s = [%s]\n", kind, strings.Join(used[kind], ", "))
		}
	}
	seen := map[string]bool{}
	for _, m := range axis.FindAllStringSubmatch(block, -1) {
		if !seen[m[1]] && used[m[1]] == nil {
			fmt.Fprintf(&b, "    %s = [\"x\"]\n", m[1])
		}
		seen[m[1]] = true
	}
	b.WriteString("  }\n")
	for kind, line := range map[string]string{
		"dataset": "datasets = [dataset.none]", "environment": "environment = environment.none", "agent": "agent = agent.none",
	} {
		if used[kind] == nil {
			b.WriteString("  " + line + "\n")
		}
	}
	b.WriteString("}\n")
	for kind, body := range map[string]string{
		"dataset": "format = \"harbor\"\n  path = \".\"", "environment": "plugin = \"local\"", "agent": "plugin = \"nop\"",
	} {
		if used[kind] == nil {
			fmt.Fprintf(&b, "%s \"none\" {\n  %s\n}\n", kind, body)
		}
	}
	return b.String()
}

// The blocks in the documents are valid HCL, and name only existing things. A
// block is a part of an experiment, so it may refer to things defined
// elsewhere.
func TestBlocksOfTheDocumentsNameWhatThereIs(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob(filepath.Join(tree.Root, "docs", "*.md"))
	e2etest.Must(t, err)
	blocks := 0
	for _, document := range documents {
		for i, m := range hclBlock.FindAllStringSubmatch(e2etest.Read(t, document), -1) {
			blocks++
			dir := t.TempDir()
			e2etest.Write(t, dir, map[string]string{"x.hcl": whole(m[1])})
			r := berth(t, dir, "validate", "--json")
			v := answer[types.Validate](t, r, "cli-validate")
			for _, d := range v.Diagnostics {
				if what := fmt.Sprint(d.Summary, " ", d.Detail); d.File != "" && (d.Summary == "Unknown name" || strings.Contains(what, "nvalid ")) && !strings.Contains(what, "no such file") {
					t.Errorf("%s, block %d, line %d: %s", filepath.Base(document), i+1, d.Start.Line, what)
				}
			}
		}
	}
	if blocks < 8 {
		t.Errorf("only %d blocks were found in %q", blocks, documents)
	}
}
