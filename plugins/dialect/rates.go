package dialect

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Dearer returns the members of a request that choose another price than the
// usual one, according to the rates of its dialect.
func Dearer(body *Object, rates map[string][]string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(rates)) {
		value := body.Get(name)
		if given(value) && !slices.Contains(rates[name], strings.Trim(string(value), `"`)) {
			names = append(names, name)
		}
	}
	return names
}

func given(raw json.RawMessage) bool { return raw != nil && string(raw) != "null" }
