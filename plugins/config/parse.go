package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/suggest"
)

// The keys of a schema and of a field.
var (
	schemaKeys = []string{"fields"}
	fieldKeys  = []string{"name", "type", "doc", "default", "required", "secret", "enum", "fields"}
)

// UnknownKeys reports every key of a schema, as JSON, that has no meaning. A
// plugin that misspells "required" would otherwise seem to have an optional field.
// raw must be JSON that fits in a Schema.
func UnknownKeys(raw json.RawMessage) error {
	return errors.Join(unknownKeys(raw, "", schemaKeys, 0)...)
}

func unknownKeys(raw json.RawMessage, at Path, known []string, depth int) (errs []error) {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil || depth > maxDepth {
		return nil // Check says what is wrong
	}
	var name string
	if json.Unmarshal(object["name"], &name) == nil && depth > 0 {
		at = at.Attr(name)
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if slices.Contains(known, key) {
			continue
		}
		where, hint := "", "the keys are "+strings.Join(known, ", ")
		if at != "" {
			where = fmt.Sprintf(" of field %q", string(at))
		}
		if best := suggest.Word(key, known); best != "" {
			hint = fmt.Sprintf("did you mean %q?", best)
		}
		errs = append(errs, fmt.Errorf("schema: unknown key %.80q%s: %s", key, where, hint))
	}
	var fields []json.RawMessage
	if json.Unmarshal(object["fields"], &fields) == nil {
		for _, f := range fields {
			errs = append(errs, unknownKeys(f, at, fieldKeys, depth+1)...)
		}
	}
	return errs
}
