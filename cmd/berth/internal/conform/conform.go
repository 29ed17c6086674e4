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
	"slices"
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
	"github.com/berth-eval/berth/plugins/surface/surfacetest"
	"github.com/berth-eval/berth/plugins/verifier"
	"github.com/berth-eval/berth/plugins/verifier/verifiertest"
)

// Options say what is tested, and with what.
type Options struct {
	// Binary is the plugin binary.
	Binary string
	// Config is the configuration of its plugins; empty: none.
	Config json.RawMessage
	// Level is what surfaces begin with; empty: what a surface without a level has.
	Level string
	// Only are words of the names of the clauses that are tried; empty: all.
	Only string
	// Cases are folders with works that its verifiers judge, see
	// verifiertest.LoadCases.
	Cases []string
	// Replies is a file with what the models of agents and verifiers answer, as
	// for a scripted model; empty: the kit's own model answers.
	Replies string
	// Spec is what an environment is asked for, beyond the least.
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

// Test tries every plugin of the binary and calls each with every result as it
// is known. It stops at the first clause that uses up its time. An error means
// that the binary, or a plugin of it, could not be tested; failed clauses are
// results. It wraps environment.ErrRefused where no sandbox can be made on this
// machine, or a plugin was not seen at work, and config.Problems where a plugin
// does not take the configuration that it is to be tried with.
func Test(ctx context.Context, o Options, each func(Result)) (err error) {
	dir, err := os.MkdirTemp(o.Runtime, "bt")
	if err != nil {
		return fmt.Errorf("make a folder for the test: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err = executable(o.Binary); err != nil {
		return fmt.Errorf("test %s: %w", o.Binary, err)
	}
	b := &bench{o: o, dir: dir, mark: markKey + "=" + filepath.Base(dir)}
	defer func() { err = errors.Join(err, b.close()) }()
	if b.host, err = plugin.New(plugin.Options{Programs: []string{o.Binary}, Dirs: []string{}, Env: []string{b.mark}, Log: o.Log}); err != nil {
		return fmt.Errorf("test %s: %w", o.Binary, err)
	}
	defer b.host.Stop()
	entries, err := b.host.List(ctx)
	if err != nil {
		return fmt.Errorf("test %s: %w", o.Binary, err)
	}
	if len(entries) == 0 {
		return fmt.Errorf("test %s: it serves no plugin", o.Binary)
	}
	var refused []error
	for i := range entries {
		if e := &entries[i]; e.Error != "" {
			return fmt.Errorf("test %s: %s", o.Binary, e.Error)
		}
		if err := b.tryOne(ctx, &entries[i], each); errors.Is(err, errHung) {
			return nil // the clause that hangs is a failed result
		} else if err != nil {
			refused = append(refused, fmt.Errorf("test %s %q: %w", entries[i].Kind, entries[i].Name, err))
		}
	}
	_ = run(ctx, b, b, leftClauses, b.report(&entries[0], each)) // as a result of the first
	if b.tried == 0 && len(refused) == 0 {
		return fmt.Errorf("test %s: no clause has %q in its name", o.Binary, o.Only)
	}
	return errors.Join(refused...)
}

// executable returns why the file at path cannot be a plugin.
func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%w. Example: berth plugin test bin/plugins/berth-plugin-local", errors.Unwrap(err))
	}
	if info.IsDir() {
		return errors.New("not an executable file but a folder. Example: berth plugin test bin/plugins/berth-plugin-local")
	}
	if info.Mode()&0o111 == 0 {
		return errors.New("not an executable file: chmod +x " + path)
	}
	return nil
}

// bench is what the plugins of one binary are tried on.
type bench struct {
	o         Options
	host      *plugin.Host
	dir       string
	mark      string // variable of the environment of all processes of the binary
	sandboxes *sandboxes
	rooms     int
	tried     int            // clauses
	atEnd     []func() error // last first
}

func (b *bench) close() error {
	var errs []error
	for _, f := range slices.Backward(b.atEnd) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// errHung ends the test: a clause has used up its time.
var errHung = errors.New("a clause did not end in time")

func (b *bench) report(e *plugin.Entry, each func(Result)) func(conformance.Result) {
	return func(r conformance.Result) {
		b.tried++
		each(Result{Kind: e.Kind, Plugin: e.Name, Result: r})
	}
}

// tryOne tries one plugin, if it takes the configuration. Its error, when it
// passed all that was tried but was not seen at work, wraps
// environment.ErrRefused.
func (b *bench) tryOne(ctx context.Context, e *plugin.Entry, each func(Result)) error {
	if err := b.takes(ctx, e); err != nil {
		return err
	}
	shown, why := false, ""
	report := b.report(e, each)
	err := b.try(ctx, e, func(r conformance.Result) {
		if r.Proof && r.Status == conformance.Skip {
			why = r.Detail[0]
		}
		shown = shown || r.Status == conformance.Fail || r.Proof && r.Status == conformance.Pass
		report(r)
	})
	if err == nil && !shown && why != "" && ctx.Err() == nil {
		return fmt.Errorf("it was not seen at work on this machine, so the clauses that passed say little: %s (%w)", why, environment.ErrRefused)
	}
	return err
}

// run tries clauses of any kit.
func run[S any](ctx context.Context, b *bench, s S, clauses []conformance.Clause[S], report func(conformance.Result)) error {
	if !conformance.Run(ctx, s, conformance.Only(clauses, b.o.Only), report) {
		return errHung
	}
	return nil
}

// checkTime is how long a call outside of a clause may take.
const checkTime = 10 * time.Second

// takes says why a plugin cannot be tried with the configuration that was given
// for it, or without one: each clause would fail, as if the plugin were at
// fault, or pass because every call is refused.
func (b *bench) takes(ctx context.Context, e *plugin.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, conformance.Patience(checkTime))
	defer cancel()
	if len(b.o.Config) == 0 {
		ps, _ := b.host.Validate(ctx, e.Kind, e.Name, json.RawMessage("{}")) // clauses are about its failure
		if len(ps) > 0 {
			return fmt.Errorf("the plugin cannot be tested without a configuration: %w: give one with --config '{…}'", config.Problems(ps))
		}
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

// try tries one plugin of the binary.
func (b *bench) try(ctx context.Context, e *plugin.Entry, report func(conformance.Result)) error {
	if err := run(ctx, b, described{b.host, e}, describedClauses, report); err != nil {
		return err
	}
	switch e.Kind {
	case plugins.KindEnvironment:
		return b.tryEnvironment(ctx, e, report)
	case plugins.KindVerifier:
		return b.tryVerifier(ctx, e, report)
	case plugins.KindAgent:
		return b.tryAgent(ctx, e, report)
	}
	return nil
}

// tryEnvironment tries an environment.
func (b *bench) tryEnvironment(ctx context.Context, e *plugin.Entry, report func(conformance.Result)) error {
	env, _, err := b.host.Environment(ctx, e.Name)
	if err != nil {
		return err
	}
	if slices.Contains(e.Capabilities, environment.CapabilitySurface) {
		if err = b.trySurface(ctx, env, report); err != nil {
			return err
		}
	}
	if slices.Contains(e.Capabilities, environment.CapabilityNoSandboxes) {
		return nil
	}
	spec := b.o.Spec
	spec.Config = b.o.Config
	s, done, err := environmenttest.Subject{
		Environment: env, Capabilities: e.Capabilities, Spec: spec, Sandboxd: b.o.Sandboxd, Runtime: b.dir, Variable: markKey,
	}.Start(ctx)
	if errors.Is(err, environment.ErrRefused) {
		return fmt.Errorf("the environment cannot create a sandbox on this machine, so its clauses were not tested: %w", err)
	}
	if err != nil {
		return err
	}
	return errors.Join(run(ctx, b, s, environmenttest.Clauses(), report), done())
}

// trySurface tries the surface of an environment.
func (b *bench) trySurface(ctx context.Context, env environment.Environment, report func(conformance.Result)) error {
	of, ok := env.(environment.Surface)
	if !ok {
		return fmt.Errorf("it announces %q and has no surface", environment.CapabilitySurface)
	}
	sandboxes, err := b.shells(ctx)
	if err != nil && !errors.Is(err, environment.ErrRefused) {
		return err
	}
	s := surfacetest.Subject{Surface: of, Request: environment.SurfaceRequest{Config: b.o.Config, Level: b.o.Level}, Shell: sandboxes.shell(false, nil)}
	return run(ctx, b, s, surfacetest.Clauses(), report)
}

// tryVerifier tries a verifier.
func (b *bench) tryVerifier(ctx context.Context, e *plugin.Entry, report func(conformance.Result)) error {
	v, traits, _, err := b.host.Verifier(ctx, e.Name)
	if err != nil {
		return err
	}
	s := verifiertest.Subject{Verifier: v, Traits: traits.With(b.o.Config), Capabilities: e.Capabilities, Config: b.o.Config, Load: b.load}
	for _, dir := range b.o.Cases {
		var cases []verifiertest.Case
		if cases, err = verifiertest.LoadCases(dir); err != nil {
			return err
		}
		for _, c := range cases {
			if c.Verifier == "" || c.Verifier == e.Name {
				s.Cases = append(s.Cases, c)
			}
		}
	}
	sandboxes, err := b.shells(ctx)
	// A verifier of the view can be tried without a sandbox.
	if err != nil && (s.Traits.Needs != verifier.NeedsNone || !errors.Is(err, environment.ErrRefused)) {
		return err
	}
	s.Shell = sandboxes.shell(true, nil)
	if err = b.judgeModels(ctx, &s); err != nil {
		return err
	}
	return run(ctx, b, s, verifiertest.Clauses(), report)
}

// tryAgent tries an agent.
func (b *bench) tryAgent(ctx context.Context, e *plugin.Entry, report func(conformance.Result)) error {
	a, _, err := b.host.Agent(ctx, e.Name)
	if err != nil {
		return err
	}
	s := agenttest.Subject{Agent: a, Config: b.o.Config, Load: b.load}
	ok, err := b.inItsRole(ctx, &s)
	if err != nil {
		return err
	}
	if !ok {
		return run(ctx, b, s, agenttest.Clauses(), report) // the clauses about Check say so
	}
	sandboxes, err := b.shells(ctx)
	if err != nil {
		return err
	}
	s.Shell = sandboxes.shell(false, func(t *conformance.T) (mounts []environment.Mount) { //nolint:contextcheck // a clause has its own context
		needs, _ := s.Check(t.Context()) // clauses are about it
		for _, b := range needs.Bundles {
			mounts = append(mounts, environment.Mount{Source: b.Source, Target: b.Target})
		}
		return mounts
	})
	if err = b.agentModels(ctx, &s); err != nil {
		return err
	}
	return run(ctx, b, s, agenttest.Clauses(), report)
}

// inItsRole lets an agent that does not work on tasks play the simulated user, or
// else gives it a reference solution. ok is false if its Check fails.
func (b *bench) inItsRole(ctx context.Context, s *agenttest.Subject) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, conformance.Patience(checkTime))
	defer cancel()
	for _, s.Role = range []agent.Role{agent.RoleAgent, agent.RoleUser} {
		needs, err := s.Check(ctx)
		if err != nil && s.Role == agent.RoleAgent {
			return false, nil //nolint:nilerr // the kit's clauses about Check report it
		}
		if err == nil && len(needs.Refusals) == 0 {
			return true, nil
		}
	}
	folder := filepath.Join(b.dir, "solution")
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "solve.sh"), []byte("echo 42 > answer.txt\n"), 0o755)); err != nil {
		return false, fmt.Errorf("lay out a reference solution: %w", err)
	}
	s.Role = agent.RoleOracle
	s.Reference = &agent.Reference{Folder: folder, Place: "/solution", Argv: []string{"sh", "/solution/solve.sh"}}
	return true, nil
}
