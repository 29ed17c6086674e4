package export

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The document lists every column of the table as it is.
func TestDocumentListsTheColumns(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../../../docs/exchange.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[Kind]string{Text: "text", Integer: "integer", Number: "number", Truth: "true or false", Time: "time"}
	var want strings.Builder
	for _, c := range Columns() {
		fmt.Fprintf(&want, "- `%s` (%s): %s\n", c.Name, kinds[c.Kind], c.Doc)
	}
	if !strings.Contains(string(b), want.String()) {
		t.Errorf("docs/exchange.md should contain:\n%s", want.String())
	}
}
