package plugins

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/proto/v1/pluginpb"
)

// CapabilitySettings is announced by a plugin with Info.Settings.
const CapabilitySettings = "settings"

// Settings are what a task sets for a plugin.
type Settings struct {
	JSON    json.RawMessage // an object; empty: the task sets nothing
	Config  json.RawMessage // the experiment's block, which may replace some of them; valid
	Capture string          // name of the capture of a surface that they are for; empty: of none
}

// ValidateSettings judges what a task sets for the plugin, as the host would ask for
// it. Without Info.Settings there is no problem.
func (p Plugin) ValidateSettings(s Settings) []config.Problem {
	if p.settings == nil {
		return nil
	}
	return p.settings(s)
}

// SettingsAreConfig is Info.Settings of a plugin whose tasks set the same things as
// its configuration, a C: the configuration replaces what it names.
func SettingsAreConfig[C any](s Settings) []config.Problem {
	all, err := config.Over(s.JSON, s.Config)
	if err != nil {
		return []config.Problem{{Summary: "Not an object", Detail: err.Error()}}
	}
	var c C
	return config.Validate(all, &c)
}

// ValidateSettings asks the binary behind conn about what a task sets for a plugin;
// none means that it is good.
func ValidateSettings(ctx context.Context, conn grpc.ClientConnInterface, kind Kind, name string, s Settings) ([]config.Problem, error) {
	if len(s.JSON) == 0 {
		s.JSON = json.RawMessage("{}")
	}
	reply, err := pluginpb.NewPluginClient(conn).Validate(ctx, &pluginpb.ValidateRequest{
		Kind: wire.Number[pluginpb.PluginKind](kind), Plugin: name, ConfigJson: s.Config, SettingsJson: s.JSON, Capture: s.Capture,
	})
	if err != nil {
		return nil, fmt.Errorf("validate what a task sets for %s %q: %w", kind, name, err)
	}
	return wire.DecodeAll[config.Problem](reply.GetProblems())
}
