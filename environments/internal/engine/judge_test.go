package engine

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/environment"
)

// known is an engine of which only facts are asked.
type known struct {
	Engine

	facts Facts
}

func (k known) Facts(context.Context) (Facts, error) { return k.facts, nil }

func with(f Facts) *Environment {
	return New(Options{
		Name: "known", Default: func() (string, error) { return "unix:///nowhere.sock", nil },
		Dial: func(string) (Engine, error) { return known{facts: f}, nil }, Help: func(_ string, err error) string { return err.Error() },
	})
}

func TestAMissingGPUIsSaidInOneLine(t *testing.T) {
	spec := environment.Spec{Network: environment.Network{Mode: environment.NetworkNone}, Limits: environment.Limits{GPUs: 1}}
	for _, tt := range []struct {
		have []string
		want string
	}{
		{want: `The task needs 1 GPU of type H100. Environment "known" offers none here.`},
		{have: []string{"A100"}, want: `The task needs 1 GPU of type H100. Environment "known" offers 1 here (A100) and may give any of them: run on a machine where all of them fit.`},
	} {
		spec.Limits.GPUTypes = []string{"H100"}
		r, err := with(Facts{GPUs: tt.have}).Check(t.Context(), spec)
		if err != nil || len(r.Refusals) != 1 || r.Refusals[0].String() != tt.want {
			t.Errorf("%+v, %v; want %q", r.Refusals, err, tt.want)
		}
	}
}

func TestWhatAnEngineCannotKeepIsRefusedOrSaid(t *testing.T) {
	plain := environment.Spec{Network: environment.Network{Mode: environment.NetworkNone}}
	for _, tt := range []struct {
		name     string
		facts    Facts
		change   func(*environment.Spec)
		refusals []string // parts, in order
		degraded []string
	}{
		{name: "a plain task"},
		{name: "one id, and a second user", facts: Facts{OneID: true}, change: func(s *environment.Spec) { s.Users = []string{"root", "agent"} }, refusals: []string{`second user, "agent"`}},
		{name: "one id, and root alone", facts: Facts{OneID: true}, change: func(s *environment.Spec) { s.Users = []string{"root", "0:0"} }},
		{name: "many ids, and a second user", change: func(s *environment.Spec) { s.Users = []string{"agent"} }},
		{name: "no memory", change: func(s *environment.Spec) { s.Limits.MemoryMiB = 64 }, degraded: []string{"limit on memory is not enforced"}},
		{name: "memory", facts: Facts{Memory: true}, change: func(s *environment.Spec) { s.Limits.MemoryMiB = 64 }},
		{name: "no public network", facts: Facts{NoPublic: "no tun"}, change: func(s *environment.Spec) { s.Network.Mode = environment.NetworkPublic }, refusals: []string{"public network"}},
		{name: "a GPU that is not there", change: func(s *environment.Spec) { s.Limits.GPUs = 1 }, refusals: []string{"1 GPU"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := plain
			if tt.change != nil {
				tt.change(&s)
			}
			r, err := with(tt.facts).Check(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			for what, c := range map[string]struct {
				got  []environment.Problem
				want []string
			}{"refused": {r.Refusals, tt.refusals}, "degraded": {r.Degraded, tt.degraded}} {
				if !slices.EqualFunc(c.got, c.want, func(p environment.Problem, part string) bool {
					return strings.Contains(p.Summary, part) && p.Detail != ""
				}) {
					t.Errorf("%s: %+v; want %q", what, c.got, c.want)
				}
			}
		})
	}
}
