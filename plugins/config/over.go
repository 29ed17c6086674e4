package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
)

// Over returns an object with the members of two others: those of over replace
// members of base with the same name. Each may be empty. A member that is null is
// absent.
func Over(base, over json.RawMessage) (json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	for _, raw := range []json.RawMessage{base, over} {
		members, err := Members(raw)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, members)
	}
	return json.Marshal(all)
}

// Members returns the members of an object that are not null. It may be empty.
func Members(raw json.RawMessage) (map[string]json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if isNull(raw) {
		return members, nil
	}
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, fmt.Errorf("write a JSON object: %w", err)
	}
	maps.DeleteFunc(members, func(_ string, value json.RawMessage) bool { return string(bytes.TrimSpace(value)) == "null" })
	return members, nil
}
