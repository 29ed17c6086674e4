package wire

import (
	"encoding/json"

	"github.com/berth-eval/berth/plugins/dialect"
)

// choice is the tool that a request chooses, in the forms of all dialects that
// have `tool_choice`.
type choice struct {
	Type, Name, Mode string
	Tools            []json.RawMessage
	Allowed          *choice `json:"allowed_tools"`
}

// must reports whether the model has to use a tool.
func (c *choice) must() bool {
	return c.Type == "required" || c.Type == "any" || c.Type == "allowed_tools" && c.Mode == "required"
}

// loose are choices that do not name a type of tool.
var loose = map[string]bool{"auto": true, "none": true, "any": true, "tool": true, "required": true}

// Forced returns the tool of the provider that a request insists on, by its
// name or type, or because no other tool is left; empty: none. hosted returns
// the name of a tool of the provider.
func Forced(body *dialect.Object, hosted func(json.RawMessage) (string, bool)) string {
	raw := body.Get("tool_choice")
	var c choice
	if json.Unmarshal(raw, &c) != nil && json.Unmarshal(raw, &c.Type) != nil {
		return ""
	}
	if c.Type == "allowed_tools" && c.Allowed != nil {
		c.Mode, c.Tools = c.Allowed.Mode, c.Allowed.Tools
	}
	if c.Type != "allowed_tools" {
		if name, ok := hosted(raw); ok && !loose[c.Type] {
			return name
		}
		body.Into("tools", &c.Tools)
	}
	forced, others := "", 0
	for _, t := range c.Tools {
		var named struct{ Name string }
		_ = json.Unmarshal(t, &named) // something that is not a tool is ignored
		name, ok := hosted(t)
		switch {
		case !ok:
			others++
		case c.Type == "tool" && c.Name == named.Name:
			return name
		case forced == "":
			forced = name
		}
	}
	if c.must() && others == 0 {
		return forced
	}
	return ""
}
