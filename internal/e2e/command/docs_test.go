package command

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/core/cli/answer"
)

var hclBlock = regexp.MustCompile("(?ms)^```hcl\n(.*?)^```")

// What a reader would copy from the documents is HCL, and names only what there
// is. A block of a document is a part of an experiment, so that it may refer to
// what stands elsewhere.
func TestBlocksOfTheDocumentsNameWhatThereIs(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, document := range documents {
		for i, m := range hclBlock.FindAllStringSubmatch(read(t, document), -1) {
			blocks++
			dir := t.TempDir()
			write(t, dir, map[string]string{"x.hcl": m[1]})
			r := berth(t, dir, "validate", "--json")
			v := answer[types.Validate](t, r, "cli-validate")
			for _, d := range v.Diagnostics {
				if what := fmt.Sprint(d.Summary, " ", d.Detail); d.File != "" && (d.Summary == "Unknown name" || strings.Contains(what, "nvalid ")) && d.Start.Line > 0 {
					t.Errorf("%s, block %d, line %d: %s\n%s", filepath.Base(document), i+1, d.Start.Line, what, d.Source)
				}
			}
		}
	}
	if blocks < 8 {
		t.Errorf("only %d blocks were found in %q", blocks, documents)
	}
}
