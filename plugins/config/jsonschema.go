package config

import "encoding/json"

// JSONSchema returns the schema as a JSON Schema (draft 2020-12), for editors
// and for authors in other languages.
func (s Schema) JSONSchema() (json.RawMessage, error) {
	m := s.object()
	m["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	return json.MarshalIndent(m, "", "  ")
}

func (s Schema) object() map[string]any {
	props := map[string]any{}
	required := []string{}
	for _, f := range s.Fields {
		props[f.Name] = f.jsonSchema()
		if f.Required {
			required = append(required, f.Name)
		}
	}
	m := map[string]any{"type": "object", "properties": props, "additionalProperties": false}
	if len(required) > 0 {
		m["required"] = required
	}
	return m
}

func (f Field) jsonSchema() map[string]any {
	var m map[string]any
	switch f.Type {
	case Block:
		m = f.Schema().object()
	case BlockList:
		m = map[string]any{"type": "array", "items": f.Schema().object()}
	case BlockMap:
		m = map[string]any{"type": "object", "additionalProperties": f.Schema().object()}
	default:
		m = f.typeSchema(f.Type)
	}
	if f.Doc != "" {
		m["description"] = f.Doc
	}
	if len(f.Default) > 0 {
		m["default"] = f.Default
	}
	if f.Secret {
		m["writeOnly"] = true
	}
	return m
}

func (f Field) typeSchema(t Type) map[string]any {
	if elem, ok := t.List(); ok {
		return map[string]any{"type": "array", "items": f.typeSchema(elem)}
	}
	if elem, ok := t.Map(); ok {
		return map[string]any{"type": "object", "additionalProperties": f.typeSchema(elem)}
	}
	m := map[string]any{}
	switch t {
	case Bool:
		m["type"] = "boolean"
	case Int:
		m["type"] = "integer"
	case Float:
		m["type"] = "number"
	case Duration:
		m["type"] = "string"
		m["pattern"] = `^[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	case String:
		m["type"] = "string"
		if len(f.Enum) > 0 {
			m["enum"] = f.Enum
		}
	default: // any value
	}
	return m
}
