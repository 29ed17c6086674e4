// Package plugins serves the plugins of a program. It also describes them to the
// host: what the program serves, and whether a configuration is valid.
//
//	func main() {
//		plugins.Serve(plugins.Verifier(
//			plugins.Info{Name: "answer", Version: "1.0.0", Doc: "Compares answer.txt with the reference."},
//			Config{}, verifier.Traits{Needs: verifier.NeedsNone}, answer{}))
//	}
//
// The contracts are in the packages agent, environment and verifier below it. The
// packages sandbox and model are for what plugins get from the core. The package
// must know no plugin, and nothing of the core.
package plugins

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Info is what an author says about a plugin.
type Info struct {
	Name    string // lower case letters, digits, - and _; unique among the plugins of its kind
	Version string // for people and lock files; never compared to decide behavior
	Doc     string // one paragraph for `berth plugin info`
	// Env names variables of the host's environment that the process needs
	// in addition to PATH, HOME, USER, LOGNAME, SHELL, LANG, LC_*, TZ, TMPDIR, XDG_* and
	// BERTH_RUNTIME_DIR, such as the address of an engine. A name that sounds
	// like a secret is refused.
	Env []string
	// Capabilities are what the plugin can do beyond the required methods and the
	// optional interfaces that its type has, which are announced without being
	// listed here. An example is environment.CapabilitySidecars.
	Capabilities []string
	// Settings says what is wrong with what a task sets for the plugin: a verifier, or
	// an environment with a surface. It has no side effects, opens nothing, and gets
	// a valid configuration. SettingsAreConfig fits many. Nil: mistakes of tasks are
	// found only when an attempt comes to them.
	Settings func(Settings) []config.Problem
	// Bundle is the recipe from which `berth agent bundle` builds the programs of an
	// agent that runs inside the sandbox. Nil: it has none.
	Bundle *bundle.Recipe
}

// Plugin is one plugin of a binary. Make it with Agent, Environment or Verifier.
type Plugin struct {
	Description

	config      reflect.Type // a struct; nil: it takes no configuration
	settings    func(Settings) []config.Problem
	agent       agent.Agent
	environment environment.Environment
	verifier    verifier.Verifier
	bug         error // what is wrong with the declaration; Serve reports it
}

// Agent is a plugin that works on tasks. conf is a value of the struct that is
// the plugin's configuration (see package config); nil means that it takes
// none. If the struct, or a pointer to it, is a config.Validator, `berth
// validate` asks it.
func Agent(info Info, conf any, impl agent.Agent) Plugin {
	p := declare(KindAgent, info, conf)
	p.agent = impl
	return p
}

// Environment is a plugin that makes sandboxes. impl may also be an
// environment.Preparer, Keeper or Surface; these are announced as
// capabilities. conf is as for Agent.
func Environment(info Info, conf any, impl environment.Environment) Plugin {
	p := declare(KindEnvironment, info, conf)
	p.environment = impl
	p.Capabilities = environment.Capabilities(impl, p.Capabilities...)
	return p
}

// Verifier is a plugin that judges what an agent left. impl may also be a
// verifier.Rewriter, which is announced as a capability. conf is as for Agent.
func Verifier(info Info, conf any, traits verifier.Traits, impl verifier.Verifier) Plugin {
	p := declare(KindVerifier, info, conf)
	p.verifier = impl
	p.Capabilities = append(verifier.Capabilities(impl), p.Capabilities...)
	p.Verifier = &traits
	return p
}

func declare(kind Kind, info Info, conf any) Plugin {
	p := Plugin{Description: Description{
		Kind: kind, Name: info.Name, Version: info.Version, Doc: info.Doc, Env: info.Env, Bundle: info.Bundle,
		Capabilities: info.Capabilities,
	}, settings: info.Settings}
	if info.Settings != nil {
		p.Capabilities = append(slices.Clone(p.Capabilities), CapabilitySettings)
	}
	if conf == nil {
		return p
	}
	p.config = reflect.TypeOf(conf)
	if p.config.Kind() == reflect.Pointer {
		p.config = p.config.Elem()
	}
	p.Schema, p.bug = config.SchemaOf(conf)
	return p
}

// Validate judges a configuration as the host would ask for it.
func (p Plugin) Validate(raw json.RawMessage) []config.Problem {
	if p.config == nil {
		return p.Schema.Problems(raw)
	}
	return config.Validate(raw, reflect.New(p.config).Interface())
}

// check returns what is wrong with the plugins of a binary, or nil.
func check(list []Plugin) error {
	if len(list) == 0 {
		return errors.New("the binary serves no plugin")
	}
	seen := map[string]bool{}
	for _, p := range list {
		id := string(p.Kind) + " " + p.Name
		if p.bug != nil {
			return fmt.Errorf("%s: %w", id, p.bug)
		}
		if err := p.Check(); err != nil {
			return err
		}
		if seen[id] {
			return fmt.Errorf("the binary serves %s twice", id)
		}
		seen[id] = true
		if p.agent == nil && p.environment == nil && p.verifier == nil {
			return fmt.Errorf("%s has no implementation", id)
		}
	}
	return nil
}
