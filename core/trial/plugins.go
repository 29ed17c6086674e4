package trial

import (
	"context"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/verifier"
)

// PluginsOf makes the plugins of a host available to attempts.
func PluginsOf(h *plugin.Host) Plugins { return hosted{h} }

type hosted struct{ *plugin.Host }

func (p hosted) Verifier(ctx context.Context, name string) (VerifierPlugin, record.PluginUsed, error) {
	v, traits, used, err := p.Host.Verifier(ctx, name)
	own := func(ctx context.Context) (verifier.Verifier, func(), error) { return p.VerifierOwnProcess(ctx, name) }
	return VerifierPlugin{Verifier: v, Traits: traits, OwnProcess: own}, used, err
}
