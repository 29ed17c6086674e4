package surfacetest_test

import (
	"encoding/json"
	"testing"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/surface/counter"
	"github.com/berth-eval/berth/plugins/surface/surfacetest"
)

func TestTheCounterPasses(t *testing.T) {
	t.Parallel()
	surfacetest.Run(t, surfacetest.Subject{Surface: &counter.Game{}, Request: environment.SurfaceRequest{Level: "2"}})
}

func TestThereAreTwentyClauses(t *testing.T) {
	t.Parallel()
	if n := len(surfacetest.Clauses()); n != 20 {
		t.Errorf("there are %d", n)
	}
}

func TestExample(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		``:                  `{}`,
		`{"type":"object"}`: `{}`,
		`{"type":"object","properties":{"n":{"type":"integer","minimum":2},"s":{"type":"string"},"b":{"type":"boolean"},"l":{"type":"array"},"o":{}},"required":["n","s","b","l"]}`: `{"b":false,"l":[],"n":2,"s":"a"}`,
		`{"type":"object","properties":{"k":{"enum":["x","y"]},"c":{"const":4}},"required":["k","c"]}`:                                                                              `{"c":4,"k":"x"}`,
		`{"type":"object","properties":{"o":{}},"required":["o"]}`:                                                                                                                  "",
		`{"type":"object","required":["o"]}`: "",
		`{"anyOf":[]}`:                       "",
	} {
		got, ok := surfacetest.Example(json.RawMessage(schema))
		if ok != (want != "") || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", schema, got, ok, want)
		}
	}
}
