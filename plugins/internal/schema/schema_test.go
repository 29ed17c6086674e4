package schema_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/internal/schema"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	s, err := schema.Compile(json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{"n":1}`:          "",
		`{"n":"1"}`:        "/n",
		`{}`:               "n",
		`{"n":1,"m":2}`:    "m",
		`{"n":1}{"n":1}`:   "not one JSON value",
		`{"n":`:            "not one JSON value",
		``:                 "not one JSON value",
		"{\"n\":\"\xff\"}": "",
	} {
		err := s.Check([]byte(text))
		if strings.Contains(text, "\xff") { // whatever it says, it does not accept a text
			if err == nil {
				t.Errorf("%q is accepted", text)
			}
			continue
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestWhatIsNoSchema(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `{`, `{"type":"dog"}`, `{"$ref":"https://example.com/x.json"}`, `{"x":"` + strings.Repeat("x", 300<<10) + `"}`} {
		if _, err := schema.Compile(json.RawMessage(text)); err == nil {
			t.Errorf("%.60q compiles", text)
		}
	}
}
