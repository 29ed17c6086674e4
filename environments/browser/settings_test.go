package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins"
)

// What a task sets for the browser and for a capture is checked before a run.
func TestSettingsOfTasksAreChecked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ capture, settings, want string }{
		{"", `{"url": "/a", "initial_delay": "2s"}`, ""},
		{"", `{"ur": "/a"}`, `Did you mean "url"?`},
		{"", `{"initial_delay": "two"}`, "initial_delay: Wrong value"},
		{"c", `{"kind": "url", "url": "/export"}`, ""},
		{"c", `{"kind": "video"}`, "kind: Wrong value"},
		{"c", `{}`, `"kind" is required`},
		{"c", `{"kind": "script"}`, `script: "script" is required`},
	} {
		ps := check(plugins.Settings{JSON: json.RawMessage(tt.settings), Capture: tt.capture})
		if (len(ps) == 0) != (tt.want == "") || len(ps) > 0 && !strings.Contains(ps[0].String(), tt.want) {
			t.Errorf("%s of %q: %v, want %q", tt.settings, tt.capture, ps, tt.want)
		}
	}
}
