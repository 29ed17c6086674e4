package wire

import (
	"encoding/json"

	"github.com/berth-eval/berth/core/gateway/dialect"
)

// choice is what a request says of which tool is to be used, in the shapes of
// all dialects that have it as `tool_choice`.
type choice struct {
	Type, Name, Mode string
	Tools            []json.RawMessage
	Allowed          *choice `json:"allowed_tools"`
}

// must says whether some tool has to be used.
func (c *choice) must() bool {
	return c.Type == "required" || c.Type == "any" || c.Type == "allowed_tools" && c.Mode == "required"
}

// loose are choices that name no type of tools.
var loose = map[string]bool{"auto": true, "none": true, "any": true, "tool": true, "required": true}

// Forced is the tool of the provider's that a request insists on: by its name or
// type, or because nothing else is left to be used; empty: none. hosted names a
// tool when it is one of those.
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
		_ = json.Unmarshal(t, &named) // what is no tool is not ours to judge
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
