package main

import (
	"encoding/json"
	"testing"
)

// Whatever a task asks for and a model replies, an answer is a JSON object with the
// keys that were asked for.
func FuzzAnswer(f *testing.F) {
	f.Add(`RESULT FORMAT {"a": 1}`, "```json\n{\"a\": 2}\n```", `{"properties":{"x":{"type":"string"}},"required":["x"]}`)
	f.Fuzz(func(t *testing.T, instruction, reply, schema string) {
		keys := resultKeys(instruction)
		text, ok := answer(reply, keys)
		if ok {
			var o map[string]json.RawMessage
			if err := json.Unmarshal([]byte(text), &o); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if _, plain := o["answer"]; !plain {
				for _, k := range keys {
					if _, there := o[k]; !there {
						t.Errorf("%q has no %q", text, k)
					}
				}
			}
		}
		signature(json.RawMessage(schema))
	})
}
