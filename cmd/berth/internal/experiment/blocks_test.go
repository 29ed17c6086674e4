package experiment

import (
	"slices"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	core "github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/plugins"
)

// The configuration of every plugin of a cell is checked before a run begins.
func TestEveryPluginOfACellChecksItsConfiguration(t *testing.T) {
	t.Parallel()
	c := &core.Cell{Cell: cell.Cell{
		Agent:       cell.Agent{Label: "a", Plugin: "acts"},
		Environment: cell.Environment{Label: "e", Plugin: "box", Surface: "page"},
		User:        &cell.User{Agent: cell.Agent{Label: "u", Plugin: "talks"}},
		Verifiers:   map[string]cell.Verifier{"v": {Label: "v", Plugin: "judges"}},
	}}
	var got []string
	for _, b := range blocksOf(c) {
		got = append(got, string(b.kind)+" "+b.label+" "+b.name)
	}
	agent, environment := string(plugins.KindAgent), string(plugins.KindEnvironment)
	if want := []string{agent + " a acts", environment + " e box", environment + " e page", agent + " u talks", string(plugins.KindVerifier) + " v judges"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
