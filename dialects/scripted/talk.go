package scripted

import (
	"errors"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/berth-eval/berth/plugins/dialect"
)

// Talk is a request as a scripted model sees it.
type Talk struct {
	Turn   int      // how many replies of the model it contains
	Last   string   // text after the last of them, from the user or from tools
	System string   // instructions
	Tools  []string // names of the offered tools
}

// calls are the types of items of the model in a list of items.
var calls = []string{"function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call", "reasoning"}

// Read returns what a scripted model looks at in a request. All dialects have
// instructions, tools and a list of messages, under different names. In a list named
// input, the items of the model that follow each other are one reply.
func Read(body *dialect.Object) (t Talk, err error) {
	get := func(names ...string) (first string, v gjson.Result) {
		for _, name := range names {
			if raw := body.Get(name); len(raw) > 0 {
				return name, gjson.ParseBytes(raw)
			}
		}
		return "", v
	}
	_, tools := get("tools")
	t.Tools = toolNames(tools)
	_, instructions := get("system", "instructions", "systemInstruction", "system_instruction")
	system := []string{text(instructions)}
	kind, list := get("messages", "input", "contents")
	if !list.IsArray() && list.Type != gjson.String {
		return t, errors.New("the request has no list of messages")
	}
	var last []string
	speaking := false
	for _, m := range list.Array() {
		role, of := m.Get("role").Str, m.Get("type").Str
		mine := role == "assistant" || role == "model" || slices.Contains(calls, of)
		switch {
		case mine:
			if !speaking || kind != "input" {
				t.Turn++
			}
			last = nil
		case of == "additional_tools":
			t.Tools = append(t.Tools, toolNames(m.Get("tools"))...)
		case role == "system" || role == "developer":
			system = append(system, text(m))
		default:
			last = append(last, text(m))
		}
		speaking = mine
	}
	t.Last, t.System = joined(last), joined(system)
	return t, nil
}

// joined joins texts that are not empty, one a line.
func joined(texts []string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "\n")
}

// text returns the text of a message or of a part of one, of which only the text and
// the results of tools have any. The result of a function counts as its JSON, or as its
// output if it has nothing else.
func text(v gjson.Result) string {
	switch {
	case v.IsArray():
		var parts []string
		for _, p := range v.Array() {
			parts = append(parts, text(p))
		}
		return joined(parts)
	case !v.IsObject():
		return v.Str
	}
	if r := v.Get("functionResponse.response"); r.Exists() {
		if only := r.Map(); len(only) == 1 && only["output"].Type == gjson.String {
			return only["output"].Str
		}
		return r.Raw
	}
	for _, name := range []string{"text", "content", "output", "parts"} {
		if inner := v.Get(name); inner.Exists() {
			return text(inner)
		}
	}
	return ""
}

// toolNames returns the names of tools, and of those in them.
func toolNames(tools gjson.Result) (names []string) {
	for _, t := range tools.Array() {
		within := false
		for _, list := range []string{"tools", "functionDeclarations", "function_declarations"} {
			if inner := t.Get(list); inner.IsArray() {
				names, within = append(names, toolNames(inner)...), true
			}
		}
		if name := t.Get("name").Str + t.Get("function.name").Str + t.Get("custom.name").Str; name != "" && !within {
			names = append(names, name)
		}
	}
	return names
}
