package trial

import (
	"context"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/verifier"
)

// PluginsOf makes the plugins of a host available to attempts.
func PluginsOf(h *plugin.Host) Plugins { return hosted{h} }

type hosted struct{ h *plugin.Host }

// Incarnation implements Incarnations.
func (p hosted) Incarnation(environment string) int { return p.h.Incarnation(environment) }

func (p hosted) Agent(ctx context.Context, name string) (agent.Agent, record.PluginUsed, error) {
	return p.h.Agent(ctx, name)
}

func (p hosted) Environment(ctx context.Context, name string) (environment.Environment, record.PluginUsed, error) {
	return p.h.Environment(ctx, name)
}

func (p hosted) Verifier(ctx context.Context, name string) (VerifierPlugin, record.PluginUsed, error) {
	v, traits, used, err := p.h.Verifier(ctx, name)
	own := func(ctx context.Context) (verifier.Verifier, func(), error) { return p.h.VerifierOwnProcess(ctx, name) }
	return VerifierPlugin{Verifier: v, Traits: traits, OwnProcess: own}, used, err
}
