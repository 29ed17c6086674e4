package main

import (
	"encoding/json"
	"testing"

	"github.com/berth-eval/berth/plugins/environment"
)

// Whatever a model replies, only actions that are offered are done, as many as are
// allowed, with arguments that are JSON.
func FuzzReply(f *testing.F) {
	offer := []environment.Action{{Name: "up"}, {Name: "down"}, {Name: "write", Schema: json.RawMessage(`{"properties":{"text":{"type":"string"}},"required":["text"]}`)}}
	f.Add("### Actions: up, down")
	f.Add("# action\nup")
	f.Add("```write\nhello\n```")
	f.Fuzz(func(t *testing.T, reply string) {
		for _, c := range []Config{
			{Format: formatList}, {Format: formatWord}, {Format: formatBlocks}, {Format: formatList, Parse: parseStrict}, {Format: formatWord, Parse: parseStrict}, {Format: formatBlocks, Parse: parseStrict},
		} {
			calls := c.parse(reply, offer)
			if len(calls) > maxActions {
				t.Errorf("%d actions", len(calls))
			}
			for _, c := range calls {
				known := c.Name == "up" || c.Name == "down" || c.Name == "write"
				if !known || len(c.Arguments) > 0 && !json.Valid(c.Arguments) {
					t.Errorf("%s(%s)", c.Name, c.Arguments)
				}
			}
		}
	})
}
