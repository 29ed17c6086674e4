package plugins

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/proto/v1/pluginpb"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Kind is what a plugin is.
type Kind string

// The kinds. The zero value is not valid.
const (
	KindAgent       Kind = "agent"
	KindEnvironment Kind = "environment"
	KindVerifier    Kind = "verifier"
)

// Kinds are all of them, in the order in which lists print them.
var Kinds = []Kind{KindAgent, KindEnvironment, KindVerifier}

// Description is what a plugin says about itself.
type Description struct {
	Kind         Kind             `json:"kind"`
	Name         string           `json:"name"`
	Version      string           `json:"version,omitempty"`      // for people; never compared
	Capabilities []string         `json:"capabilities,omitempty"` // beyond the required methods; see Info.Capabilities
	Schema       config.Schema    `json:"schema"`                 // of its configuration
	Doc          string           `json:"doc,omitempty"`          // one paragraph
	Verifier     *verifier.Traits `json:"verifier,omitempty"`     // of a verifier
	Env          []string         `json:"env,omitempty"`          // see Info.Env
	Bundle       *bundle.Recipe   `json:"bundle,omitempty"`       // of an agent; see Info.Bundle
}

var (
	pluginName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)
	envName    = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)
	secretName = regexp.MustCompile(`KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL`)
)

// Check says what is wrong with a description that came from elsewhere.
func (d Description) Check() error {
	if !pluginName.MatchString(d.Name) {
		return fmt.Errorf("plugin name %q: write lower case letters, digits, - and _, a letter first, at most 64", d.Name)
	}
	for _, e := range d.Env {
		if !envName.MatchString(e) || secretName.MatchString(strings.ToUpper(e)) {
			return fmt.Errorf("%s %q asks for variable %q of the host: a plugin gets no secrets, and names are upper case", d.Kind, d.Name, e)
		}
	}
	if (d.Kind == KindVerifier) != (d.Verifier != nil) {
		return fmt.Errorf("%s %q: a verifier has traits, and nothing else has", d.Kind, d.Name)
	}
	if err := d.Schema.Check(); err != nil {
		return fmt.Errorf("%s %q: %w", d.Kind, d.Name, err)
	}
	if d.Verifier == nil {
		return nil
	}
	for name := range d.Verifier.OwnWith {
		if !slices.ContainsFunc(d.Schema.Fields, func(f config.Field) bool { return f.Name == name }) {
			return fmt.Errorf("%s %q: OwnWith names %q, which is not an attribute of its configuration", d.Kind, d.Name, name)
		}
	}
	return nil
}

// DescriptionToProto is d as it travels.
func DescriptionToProto(d Description) (*pluginpb.PluginDescription, error) {
	schema, err := json.Marshal(d.Schema)
	if err != nil {
		return nil, fmt.Errorf("schema of %s %q: %w", d.Kind, d.Name, err)
	}
	p := &pluginpb.PluginDescription{
		Kind: wire.Number[pluginpb.PluginKind](d.Kind), Name: d.Name, Version: wire.Text(d.Version), Capabilities: d.Capabilities, ConfigSchemaJson: schema,
		Doc: wire.Text(d.Doc), Env: d.Env,
	}
	if d.Bundle != nil {
		if p.BundleRecipeJson, err = json.Marshal(d.Bundle); err != nil {
			return nil, fmt.Errorf("bundle of %s %q: %w", d.Kind, d.Name, err)
		}
	}
	if d.Verifier != nil {
		p.Verifier = wire.Encode(&pluginpb.VerifierTraits{}, *d.Verifier)
	}
	return p, nil
}

// DescriptionFromProto is what p says, or what is wrong with it.
func DescriptionFromProto(p *pluginpb.PluginDescription) (d Description, err error) {
	d = Description{
		Name: p.GetName(), Version: p.GetVersion(), Capabilities: p.GetCapabilities(), Doc: p.GetDoc(), Env: p.GetEnv(),
	}
	if d.Kind, err = wire.Word[Kind]("kind", p.GetKind()); err != nil {
		return d, fmt.Errorf("plugin %q: %w", d.Name, err)
	}
	if raw := p.GetConfigSchemaJson(); len(raw) > 0 {
		strict := json.NewDecoder(bytes.NewReader(raw))
		strict.DisallowUnknownFields() // a misspelled "required" would make a field optional
		if err = strict.Decode(&d.Schema); err != nil {
			return d, fmt.Errorf("schema of %s %q: %w", d.Kind, d.Name, err)
		}
	}
	if raw := p.GetBundleRecipeJson(); len(raw) > 0 {
		if err = json.Unmarshal(raw, &d.Bundle); err != nil {
			return d, fmt.Errorf("bundle of %s %q: %w", d.Kind, d.Name, err)
		}
	}
	if p.GetVerifier() != nil {
		traits, err := wire.Decode[verifier.Traits](p.GetVerifier())
		if err != nil {
			return d, fmt.Errorf("verifier %q: %w", d.Name, err)
		}
		d.Verifier = &traits
	}
	return d, d.Check()
}

// Describe asks the binary behind conn what it serves, and refuses an answer that
// makes no sense. conn decodes errors (fault.Client).
func Describe(ctx context.Context, conn grpc.ClientConnInterface) ([]Description, error) {
	reply, err := pluginpb.NewPluginClient(conn).Describe(ctx, &pluginpb.DescribeRequest{})
	if err != nil {
		return nil, fmt.Errorf("describe: %w", err)
	}
	var list []Description
	seen := map[string]bool{}
	for _, p := range reply.GetPlugins() {
		d, err := DescriptionFromProto(p)
		if err != nil {
			return nil, fmt.Errorf("describe: %w", err)
		}
		id := string(d.Kind) + " " + d.Name
		if seen[id] {
			return nil, fmt.Errorf("describe: %w", wire.Invalid("the binary serves %s twice", id))
		}
		seen[id] = true
		list = append(list, d)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("describe: %w", wire.Invalid("the binary says that it serves no plugin"))
	}
	return list, nil
}

// Validate asks the binary behind conn about a configuration; none means that
// it is good.
func Validate(ctx context.Context, conn grpc.ClientConnInterface, kind Kind, name string, conf json.RawMessage) ([]config.Problem, error) {
	reply, err := pluginpb.NewPluginClient(conn).Validate(ctx, &pluginpb.ValidateRequest{Kind: wire.Number[pluginpb.PluginKind](kind), Plugin: name, ConfigJson: conf})
	if err != nil {
		return nil, fmt.Errorf("validate the configuration of %s %q: %w", kind, name, err)
	}
	return wire.DecodeAll[config.Problem](reply.GetProblems())
}
