// Package conform runs the conformance kits on a built plugin in any language,
// for `berth plugin test`.
//
// It must not know any plugin. The kits contain the clauses. This package
// starts the binary and provides sandboxes for the tests.
package conform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/agenttest"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/environment/environmenttest"
	"github.com/berth-eval/berth/plugins/verifier"
	"github.com/berth-eval/berth/plugins/verifier/verifiertest"
)

// Options say what is tested, and with what.
type Options struct {
	// Binary is the plugin binary.
	Binary string
	// Config is the configuration of its plugins; empty: none.
	Config json.RawMessage
	// Spec is the base of the sandboxes for an environment.
	Spec environment.Spec
	// Sandboxd is the binary for control folders.
	Sandboxd string
	// Runtime is a folder on node-local disk with a short path.
	Runtime string
	// Shells is the environment plugin that makes sandboxes for agents and
	// verifiers; it is found in Dirs. Empty, or not found: clauses that need a
	// sandbox are skipped.
	Shells string
	// Dirs are searched for plugins other than Binary; nil: the default
	// folders.
	Dirs []string
	Log  zerolog.Logger
}

// Result is the result of one clause for one plugin.
type Result struct {
	Kind   plugins.Kind `json:"kind"`
	Plugin string       `json:"plugin"`
	conformance.Result
}

// Test tests every plugin of the binary and calls each with every result at
// once. Failed clauses are results. An error means that the binary, or one of
// its plugins, could not be tested. It wraps environment.ErrRefused if no
// sandbox can be created on this machine, and config.Problems if a plugin
// rejects its configuration.
func Test(ctx context.Context, o Options, each func(Result)) (err error) {
	dir, err := os.MkdirTemp(o.Runtime, "bt")
	if err != nil {
		return fmt.Errorf("make a folder for the test: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary, err := filepath.Abs(o.Binary)
	if err != nil {
		return fmt.Errorf("test %s: %w", o.Binary, err)
	}
	info, err := os.Stat(binary)
	if err != nil {
		return fmt.Errorf("test %s: %w. Example: berth plugin test bin/plugins/local", o.Binary, errors.Unwrap(err))
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("test %s: not an executable file. Example: berth plugin test bin/plugins/local", o.Binary)
	}
	// A folder with nothing else, so that no other binary is found.
	only := filepath.Join(dir, "p")
	if err = errors.Join(os.Mkdir(only, 0o700), os.Symlink(binary, filepath.Join(only, filepath.Base(binary)))); err != nil {
		return fmt.Errorf("test %s: %w", o.Binary, err)
	}
	host, err := plugin.New(plugin.Options{Dirs: []string{only}, Log: o.Log})
	if err != nil {
		return fmt.Errorf("test %s: %w", o.Binary, err)
	}
	defer host.Stop()
	entries, err := host.List(ctx)
	if err != nil {
		return fmt.Errorf("test %s: %w", o.Binary, err)
	}
	b := &bench{o: o, host: host, dir: dir}
	defer func() { err = errors.Join(err, b.close()) }()
	var refused []error
	for i := range entries {
		if e := &entries[i]; e.Error != "" {
			return fmt.Errorf("test %s: %s", o.Binary, e.Error)
		}
		if err := b.takes(ctx, &entries[i]); err != nil {
			refused = append(refused, fmt.Errorf("test %s %q: %w", entries[i].Kind, entries[i].Name, err))
			continue
		}
		if err := b.try(ctx, &entries[i], each); err != nil {
			return fmt.Errorf("test %s %q: %w", entries[i].Kind, entries[i].Name, err)
		}
	}
	if len(entries) == 0 {
		return fmt.Errorf("test %s: it serves no plugin", o.Binary)
	}
	return errors.Join(refused...)
}

// bench is what the plugins of one binary are tested with.
type bench struct {
	o    Options
	host *plugin.Host
	dir  string
	lab  *lab
}

func (b *bench) close() error {
	if b.lab == nil {
		return nil
	}
	return b.lab.close()
}

// takes returns an error if the plugin rejects its configuration. Otherwise
// every clause would fail as if the plugin were at fault.
func (b *bench) takes(ctx context.Context, e *plugin.Entry) error {
	if len(b.o.Config) == 0 {
		return nil
	}
	ps, err := b.host.Validate(ctx, e.Kind, e.Name, b.o.Config)
	if err != nil {
		return fmt.Errorf("validate the configuration: %w", err)
	}
	if len(ps) > 0 {
		return fmt.Errorf("the plugin rejects the configuration: %w", config.Problems(ps))
	}
	return nil
}

// try tests one plugin of the binary.
func (b *bench) try(ctx context.Context, e *plugin.Entry, each func(Result)) error {
	report := func(r conformance.Result) { each(Result{Kind: e.Kind, Plugin: e.Name, Result: r}) }
	conformance.Run(ctx, described{b.host, e}, describedClauses, report)
	switch e.Kind {
	case plugins.KindEnvironment:
		env, _, err := b.host.Environment(ctx, e.Name)
		if err != nil {
			return err
		}
		spec := b.o.Spec
		spec.Config = b.o.Config
		s, done, err := environmenttest.Subject{
			Environment: env, Capabilities: e.Capabilities, Spec: spec, Sandboxd: b.o.Sandboxd, Runtime: b.dir,
		}.Start(ctx)
		if errors.Is(err, environment.ErrRefused) {
			return fmt.Errorf("the environment cannot create a sandbox on this machine, so its clauses were not tested: %w", err)
		}
		if err != nil {
			return err
		}
		conformance.Run(ctx, s, environmenttest.Clauses(), report)
		return done()
	case plugins.KindVerifier:
		v, traits, _, err := b.host.Verifier(ctx, e.Name)
		if err != nil {
			return err
		}
		s := verifiertest.Subject{Verifier: v, Traits: traits, Capabilities: e.Capabilities, Config: b.o.Config}
		excused := traits.Needs == verifier.NeedsNone // it can be tested without a sandbox
		if lab, err := b.shells(ctx); err != nil && (!excused || !errors.Is(err, environment.ErrRefused)) {
			return err
		} else if lab != nil {
			s.Shell = func(ctx context.Context, t *conformance.T) string {
				a, _ := lab.shell(ctx, t, order{grading: true})
				return a
			}
		}
		conformance.Run(ctx, s, verifiertest.Clauses(), report)
	case plugins.KindAgent:
		return b.tryAgent(ctx, e, report)
	}
	return nil
}

// tryAgent tests an agent.
func (b *bench) tryAgent(ctx context.Context, e *plugin.Entry, report func(conformance.Result)) error {
	a, _, err := b.host.Agent(ctx, e.Name)
	if err != nil {
		return err
	}
	s := agenttest.Subject{Agent: a, Config: b.o.Config}
	if err = b.asOracle(ctx, &s); err != nil {
		return err
	}
	lab, err := b.shells(ctx)
	if err != nil {
		return err
	}
	if lab != nil {
		s.Shell = func(ctx context.Context, t *conformance.T) (string, func()) {
			return lab.shell(ctx, t, order{mounts: mounts(ctx, &s)})
		}
	}
	done, err := b.withModels(ctx, &s)
	if err != nil {
		return err
	}
	conformance.Run(ctx, s, agenttest.Clauses(), report)
	return done()
}

// asOracle gives a reference solution to an agent that works only with one.
func (b *bench) asOracle(ctx context.Context, s *agenttest.Subject) error {
	ctx, cancel := context.WithTimeout(ctx, conformance.Patience(10*time.Second))
	defer cancel()
	needs, err := s.Agent.Check(ctx, agent.CheckRequest{Config: s.Config, Role: agent.RoleAgent})
	if err != nil || len(needs.Refusals) == 0 {
		return nil //nolint:nilerr // the kit's clauses about Check report it
	}
	folder := filepath.Join(b.dir, "solution")
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "solve.sh"), []byte("echo 42 > answer.txt\n"), 0o755)); err != nil {
		return fmt.Errorf("lay out a reference solution: %w", err)
	}
	s.Role = agent.RoleOracle
	s.Reference = &agent.Reference{Folder: folder, Place: "/solution", Argv: []string{"sh", "/solution/solve.sh"}}
	return nil
}
