package conform

import (
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
	conformance.New("it has a version, and a doc for itself and each option",
		"a result that names a plugin that cannot be identified", func(t *conformance.T, d described) {
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
		}),
	conformance.New("the same configuration gets the same answer twice", "a plan that depends on what was planned before", func(t *conformance.T, d described) {
		first, err1 := d.validate(t, `{}`)
		second, err2 := d.validate(t, `{}`)
		if err1 != nil || err2 != nil || !reflect.DeepEqual(first, second) {
			t.Errorf("first %+v, %v; then %+v, %v", first, err1, second, err2)
		}
	}),
	conformance.New("an unknown key of a configuration is a problem that names it", "a misspelt option that silently does nothing", func(t *conformance.T, d described) {
		const key = "an_option_that_no_plugin_has"
		ps, err := d.validate(t, `{"`+key+`": true}`)
		t.Must("validate", err)
		for _, p := range ps {
			if strings.Contains(string(p.Path)+p.Summary+p.Detail, key) {
				return
			}
		}
		t.Errorf("problems %+v; want one that names %s", ps, key)
	}),
	conformance.New("a configuration that is not an object is reported, and does not crash the plugin",
		"a plugin that ends, and with it every other attempt", func(t *conformance.T, d described) {
			for _, raw := range []string{`[]`, `"text"`, `{"a": [`} {
				if ps, err := d.validate(t, raw); err == nil && len(ps) == 0 {
					t.Errorf("accepts %s", raw)
				}
			}
			_, err := d.validate(t, `{}`)
			t.Check("afterwards", err)
		}),
}

func (d described) validate(t *conformance.T, raw string) ([]config.Problem, error) {
	return d.host.Validate(t.Context(), d.entry.Kind, d.entry.Name, json.RawMessage(raw))
}

// ClausesOfAll are the names of the clauses that hold for plugins of every kind.
func ClausesOfAll() []string {
	return append(conformance.Names(describedClauses), conformance.Names(leftClauses)...)
}
