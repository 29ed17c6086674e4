package conform

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/conformance"
)

// described is a plugin with its description.
type described struct {
	host  *plugin.Host
	entry *plugin.Entry
}

// describedClauses hold for plugins of every kind.
var describedClauses = []conformance.Clause[described]{
	{
		Name:   "it has a version, and a doc for itself and each option",
		Guards: "a result that names a plugin that cannot be identified",
		Run: func(_ context.Context, t *conformance.T, d described) {
			if d.entry.Version == "" {
				t.Errorf("has no version")
			}
			if strings.TrimSpace(d.entry.Doc) == "" {
				t.Errorf("has no doc")
			}
			for _, f := range d.entry.Schema.Fields {
				if f.Doc == "" {
					t.Errorf("option %q of its configuration has no doc", f.Name)
				}
			}
		},
	},
	{
		Name:   "the same configuration gets the same answer twice",
		Guards: "a plan that depends on what was planned before",
		Run: func(ctx context.Context, t *conformance.T, d described) {
			first, err1 := d.validate(ctx, `{}`)
			second, err2 := d.validate(ctx, `{}`)
			if err1 != nil || err2 != nil || !reflect.DeepEqual(first, second) {
				t.Errorf("first %+v, %v; then %+v, %v", first, err1, second, err2)
			}
		},
	},
	{
		Name:   "an unknown key of a configuration is a problem that names it",
		Guards: "a misspelt option that silently does nothing",
		Run: func(ctx context.Context, t *conformance.T, d described) {
			const key = "an_option_that_no_plugin_has"
			ps, err := d.validate(ctx, `{"`+key+`": true}`)
			if err != nil {
				t.Fatalf("validate: %v", err)
			}
			for _, p := range ps {
				if strings.Contains(string(p.Path)+p.Summary+p.Detail, key) {
					return
				}
			}
			t.Errorf("problems %+v; want one that names %s", ps, key)
		},
	},
	{
		Name:   "a configuration that is not an object is reported, and does not crash the plugin",
		Guards: "a plugin that ends, and with it every other attempt",
		Run: func(ctx context.Context, t *conformance.T, d described) {
			for _, raw := range []string{`[]`, `"text"`, `{"a": [`} {
				if ps, err := d.validate(ctx, raw); err == nil && len(ps) == 0 {
					t.Errorf("accepts %s", raw)
				}
			}
			if _, err := d.validate(ctx, `{}`); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		},
	},
}

func (d described) validate(ctx context.Context, raw string) ([]config.Problem, error) {
	return d.host.Validate(ctx, d.entry.Kind, d.entry.Name, json.RawMessage(raw))
}

// ClausesOfAll are the names of the clauses that hold for plugins of every kind.
func ClausesOfAll() (names []string) {
	for _, c := range describedClauses {
		names = append(names, c.Name)
	}
	for _, c := range leftClauses {
		names = append(names, c.Name)
	}
	return names
}
