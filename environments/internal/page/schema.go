package page

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Schema returns the JSON Schema of an action's arguments. Properties are in the
// order of the parameters, which is that of arguments without names.
func (a *Action) Schema() json.RawMessage {
	properties, required := []string{}, []string{}
	for _, p := range a.Parameters {
		s := object{"type": p.Type}
		if p.Type == "strings" {
			s = object{"anyOf": []object{{"type": "string"}, {"type": "array", "items": object{"type": "string"}}}}
		}
		if p.Doc != "" {
			s["description"] = p.Doc
		}
		if len(p.Enum) > 0 {
			s["enum"] = p.Enum
		}
		if p.Default != nil {
			s["default"] = p.Default
		} else {
			required = append(required, p.Name)
		}
		properties = append(properties, fmt.Sprintf("%q:%s", p.Name, encoded(s)))
	}
	return fmt.Appendf(nil, `{"type":"object","additionalProperties":false,"properties":{%s},"required":%s}`, strings.Join(properties, ","), encoded(required))
}

// encoded is for values that JSON has a form of.
func encoded(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
