package surfacetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/surface/counter"
	"github.com/berth-eval/berth/plugins/surface/surfacetest"
)

func TestTheCounterPasses(t *testing.T) {
	t.Parallel()
	surfacetest.Run(t, surfacetest.Subject{Surface: &counter.Game{}, Request: environment.SurfaceRequest{Level: "2"}})
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

// lacking is a surface on a machine that lacks what it needs, to open or to act.
type lacking struct {
	counter.Game

	toOpen error
}

var errLacking = fmt.Errorf("%w: apt-get install something", environment.ErrRefused)

func (l *lacking) OpenSurface(ctx context.Context, spec environment.SurfaceSpec) (string, error) {
	if l.toOpen != nil {
		return "", l.toOpen
	}
	return l.Game.OpenSurface(ctx, spec)
}

func (*lacking) Act(context.Context, string, environment.Call, []string) (environment.Step, error) {
	return environment.Step{}, errLacking
}

// What a surface refuses is skipped, and does not count as seen at work.
func TestASurfaceThatRefusesIsSkipped(t *testing.T) {
	t.Parallel()
	for what, s := range map[string]surfacetest.Subject{
		"open: refused: ":               {Surface: &lacking{toOpen: errLacking}},
		"act add({\"n\":1}): refused: ": {Surface: &lacking{}},
	} {
		s.Request.Level = "2"
		skipped := 0
		conformance.Run(t.Context(), s, surfacetest.Clauses(), func(r conformance.Result) {
			if r.Status == conformance.Skip && r.Detail[0] == what+"apt-get install something" {
				skipped++
			} else if r.Proof {
				t.Errorf("%s: %s %q", r.Clause, r.Status, r.Detail)
			}
		})
		if skipped == 0 {
			t.Errorf("no clause was skipped because of %q", what)
		}
	}
}
