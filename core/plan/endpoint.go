package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/config"
	"github.com/berth-eval/berth/core/store"
)

// endpoints are where the models of a cell are, by who uses them.
func endpoints(c *config.Cell) map[string]store.Endpoint {
	all := map[string]store.Endpoint{}
	add := func(who string, ms map[string]*cell.Model) {
		for role, m := range ms {
			e := store.Endpoint{Address: m.BaseURL, Replay: m.Replay}
			if m.APIKey != nil {
				e.Key = "written in the experiment"
				if m.APIKey.Secret() != nil {
					e.Key = m.APIKey.String()
				}
			}
			all[who+"."+role] = e
		}
	}
	add("agent", c.Agent.Models)
	if c.User != nil {
		add("user", c.User.Agent.Models)
	}
	for label, v := range c.Verifiers {
		add(fmt.Sprintf("verifier %q", label), v.Models)
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// Diverted says which models of a stored plan are reached at another address,
// or with another key, than in the plan made now. That changes no result that is
// there, but it may send a key and all that an agent says to somebody else.
func Diverted(before, after *store.Manifest) []Change {
	old, now := map[string]store.Cell{}, map[string]store.Cell{}
	for _, c := range before.Cells {
		old[c.Key] = c
	}
	for _, c := range after.Cells {
		now[c.Key] = c
	}
	var changes []Change
	for _, key := range union(slices.Sorted(maps.Keys(old)), slices.Sorted(maps.Keys(now))) {
		changes = append(changes, diffJSON("cell "+name(key), "models", modelTree(old[key]), modelTree(now[key]))...)
	}
	return changes
}

func modelTree(c store.Cell) any {
	models := maps.Clone(c.Models)
	if models == nil {
		models = map[string]store.Endpoint{}
	}
	b, err := json.Marshal(models)
	if err != nil {
		return nil // strings always marshal
	}
	return tree(b)
}
