// Package plugin runs plugin binaries. It finds them, asks what they serve,
// starts one process per binary when it is first needed, gives callers the
// contracts that it serves, restarts it after a crash, and stops it.
//
// It must not know the name of any plugin, nor what the calls of a contract
// mean: it explains a failed call, and the caller decides what follows from it.
package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/verifier"
)

// The errors of a host.
var (
	// ErrPluginGone means that the plugin ended during a call: its process
	// exited, the call panicked, or the session was opened in a process that
	// has ended. The next call starts the process again.
	ErrPluginGone = errors.New("plugin exited")
	// ErrUnknown means that no binary serves the plugin.
	ErrUnknown = errors.New("unknown plugin")
	// ErrStopped means that the host was stopped.
	ErrStopped = errors.New("plugin host is stopped")
)

// Options are the options of a host. The zero value works: it finds plugins in
// the usual places and caches nothing.
type Options struct {
	// Dirs are searched in this order; the first binary that serves a name is
	// used. Nil means the folders of SearchPath.
	Dirs []string
	// Programs are plugin binaries that the user named by their paths. They come
	// before those in Dirs, and may have any name.
	Programs []string
	// Cache is the folder where digests and descriptions of binaries are
	// cached; it is created if absent. Empty means no cache: every binary is
	// started once to be asked.
	Cache string
	// Env is added to the environment of every process, as K=V.
	Env []string
	// Log gets the actions of the host and the output of plugins.
	Log zerolog.Logger
}

// Host holds all plugins of one program. Its methods are safe for concurrent
// use.
type Host struct {
	opts    Options
	sockets *node.Scratch

	startTimeout time.Duration // for a handshake
	maxCrashes   int           // in a row, before a binary is no longer restarted

	output atomic.Pointer[output] // never nil

	mu       sync.Mutex
	stopped  bool
	scanned  bool
	binaries []*binary
	plugins  map[id]*served
	entries  []Entry
	ignored  []string // executable files in Dirs that are not named like a plugin
}

type id struct {
	kind plugins.Kind
	name string
}

// served is one plugin that a binary serves.
type served struct {
	plugins.Description

	binary *binary
}

// New makes a host; it starts no process.
func New(opts Options) (*Host, error) {
	if opts.Dirs == nil {
		opts.Dirs = SearchPath(os.Getenv)
	}
	sockets, err := openSockets()
	if err != nil {
		return nil, err
	}
	h := &Host{
		opts: opts, sockets: sockets, plugins: map[id]*served{},
		startTimeout: 20 * time.Second, maxCrashes: 5,
	}
	h.Keep(nil, nil)
	return h, nil
}

// Agent returns the agent with that name. Its process starts with the first
// call.
func (h *Host) Agent(ctx context.Context, name string) (agent.Agent, record.PluginUsed, error) {
	s, err := h.lookup(ctx, plugins.KindAgent, name)
	if err != nil {
		return nil, record.PluginUsed{}, err
	}
	return agent.NewClient(s.conn(), name), s.used(), nil
}

// Environment returns the environment with that name. Its optional methods fail
// with environment.ErrUnsupported if the plugin does not have them.
func (h *Host) Environment(ctx context.Context, name string) (environment.Environment, record.PluginUsed, error) {
	s, err := h.lookup(ctx, plugins.KindEnvironment, name)
	if err != nil {
		return nil, record.PluginUsed{}, err
	}
	return environment.NewClient(s.conn(), name, s.Capabilities...), s.used(), nil
}

// Incarnation returns the number, from 1, of the process that answers the next
// call to an environment. When the number changes, the previous process has
// ended, together with everything that lived in it. 0 means that no such
// environment is known.
func (h *Host) Incarnation(environment string) int {
	h.mu.Lock()
	s := h.plugins[id{plugins.KindEnvironment, environment}]
	h.mu.Unlock()
	if s == nil {
		return 0
	}
	return s.binary.incarnation()
}

// Verifier returns the verifier with that name and its traits. The verifier is
// a Rewriter if the plugin is.
func (h *Host) Verifier(ctx context.Context, name string) (verifier.Verifier, verifier.Traits, record.PluginUsed, error) {
	s, err := h.lookup(ctx, plugins.KindVerifier, name)
	if err != nil {
		return nil, verifier.Traits{}, record.PluginUsed{}, err
	}
	return verifier.NewClient(s.conn(), name, s.Capabilities), *s.Verifier, s.used(), nil
}

// VerifierOwnProcess returns the verifier with that name in its own process,
// which starts now and serves only this caller. stop ends it.
func (h *Host) VerifierOwnProcess(ctx context.Context, name string) (v verifier.Verifier, stop func(), err error) {
	s, err := h.lookup(ctx, plugins.KindVerifier, name)
	if err != nil {
		return nil, nil, err
	}
	p, err := s.binary.startOwn(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("verifier %q: %w", name, err)
	}
	c := s.conn()
	c.only = p
	return verifier.NewClient(c, name, s.Capabilities), p.stop, nil
}

// Schema returns the schema of a plugin's configuration.
func (h *Host) Schema(ctx context.Context, kind plugins.Kind, name string) (config.Schema, error) {
	s, err := h.lookup(ctx, kind, name)
	if err != nil {
		return config.Schema{}, err
	}
	return s.Schema, nil
}

// Validate starts a plugin and asks it to check a configuration; no problems
// means that it is valid.
func (h *Host) Validate(ctx context.Context, kind plugins.Kind, name string, conf json.RawMessage) ([]config.Problem, error) {
	s, err := h.lookup(ctx, kind, name)
	if err != nil {
		return nil, err
	}
	return plugins.Validate(ctx, s.conn(), kind, name, conf)
}

// ValidateSettings asks a plugin to check what a task sets for it; no problems means
// that it is valid, or that the plugin does not announce that it checks this.
func (h *Host) ValidateSettings(ctx context.Context, kind plugins.Kind, name string, of plugins.Settings) ([]config.Problem, error) {
	s, err := h.lookup(ctx, kind, name)
	if err != nil || !slices.Contains(s.Capabilities, plugins.CapabilitySettings) {
		return nil, err
	}
	return plugins.ValidateSettings(ctx, s.conn(), kind, name, of)
}

// Entry is one plugin, or one binary that cannot be used.
type Entry struct {
	plugins.Description

	Protocol   int    `json:"protocol"`              // protocol number that host and plugin speak
	Path       string `json:"path"`                  // of the binary, or of the socket of a process that the user started
	Digest     string `json:"digest"`                // of the binary, or of all files in its folder: sha256:…
	ShadowedBy string `json:"shadowed_by,omitempty"` // binary that comes first and serves the same name
	Error      string `json:"error,omitempty"`       // why the binary cannot be used; it has no description then
}

// List returns every plugin that was found, in search order, with anything
// unusual about it. The caller prints that; List does not log it.
func (h *Host) List(ctx context.Context) ([]Entry, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.scan(ctx, zerolog.Nop()); err != nil {
		return nil, err
	}
	return append([]Entry(nil), h.entries...), nil
}

// NotStarted returns the paths of executable files in plugin folders that are not
// started, because they do not have the name of a plugin. The hint for the user is
// Ignored.
func (h *Host) NotStarted(ctx context.Context) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.scan(ctx, zerolog.Nop()); err != nil {
		return nil, err
	}
	return slices.Clone(h.ignored), nil
}

// Stop ends every process: gracefully, and after two seconds by force. The host
// cannot be used afterwards. Idempotent.
func (h *Host) Stop() {
	h.mu.Lock()
	first, list := !h.stopped, h.binaries
	h.stopped = true
	h.mu.Unlock()
	if !first {
		return
	}
	var wait sync.WaitGroup
	for _, b := range list {
		wait.Go(b.stop)
	}
	wait.Wait()
	if err := h.sockets.Remove(); err != nil {
		h.opts.Log.Warn().Err(err).Msg("folder for plugin sockets stays")
	}
}

func (s *served) used() record.PluginUsed {
	return record.PluginUsed{Kind: string(s.Kind), Name: s.Name, Version: s.Version, Digest: s.binary.digest}
}

func (s *served) conn() conn {
	return conn{binary: s.binary, who: fmt.Sprintf("%s %q", s.Kind, s.Name)}
}
