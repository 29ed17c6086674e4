package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// The limit of a run is told without calling anything.
func TestCostLimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		want       float64
		none       bool
		known      bool
	}{
		{name: "a number", text: "experiment \"x\" {\n limits {\n cost_usd = 2.5\n }\n}\n", want: 2.5, known: true},
		{name: "a variable", text: "experiment \"x\" {\n limits {\n cost_usd = var.most * 2\n }\n}\n", want: 8, known: true},
		{name: "none", text: "experiment \"x\" {\n per_trial {\n cost_usd = 2\n }\n}\n", none: true, known: true},
		{name: "a function", text: "experiment \"x\" {\n limits {\n cost_usd = tonumber(file(\"/etc/passwd\"))\n }\n}\n", none: true},
		{name: "broken", text: "experiment \"x\" {", none: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "berth.hcl"), []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, known := CostLimit(dir, map[string]json.RawMessage{"most": json.RawMessage("4"), "other": json.RawMessage(`"text"`)})
			if known != tt.known || (got == nil) != tt.none || got != nil && *got != tt.want {
				t.Errorf("got %v, %v", got, known)
			}
		})
	}
}
