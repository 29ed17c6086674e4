// Package plugin runs plugin binaries: it finds them, asks what they serve,
// starts one process a binary when it is first needed, hands out the contracts
// that it serves, starts it again after a crash, and stops it.
//
// It must not know any plugin's name, nor what a contract's calls mean: a
// failed call is explained here and judged by the caller.
package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/verifier"
)

// What a host fails with.
var (
	// ErrPluginGone means that the plugin ended during a call: its process
	// exited, or the call met a bug and panicked, or the session was opened in
	// a process that is no more. The next call starts the process again.
	ErrPluginGone = errors.New("plugin exited")
	// ErrUnknown means that no binary serves such a plugin.
	ErrUnknown = errors.New("unknown plugin")
	// ErrStopped means that the host was stopped.
	ErrStopped = errors.New("plugin host is stopped")
)

// Options are what a host is made with. The zero value works: it finds plugins
// in the usual places and remembers nothing.
type Options struct {
	// Dirs are searched in this order, the first to serve a name wins. Nil:
	// those of SearchPath.
	Dirs []string
	// Cache is the folder where digests and descriptions of binaries are
	// remembered, made when it is absent. Empty: nothing is remembered, and
	// every binary is started once to be asked.
	Cache string
	// Env is added to the environment of every process, as K=V.
	Env []string
	// Log gets what the host does and what plugins write.
	Log zerolog.Logger
}

// Host is all plugins of one program. Its methods are safe for concurrent use.
type Host struct {
	opts    Options
	sockets *socketDir

	startTimeout time.Duration // for a handshake
	maxCrashes   int           // in a row, until a binary is given up
	firstBackoff time.Duration // wait before the first restart, doubled each time

	mu       sync.Mutex
	stopped  bool
	scanned  bool
	binaries []*binary
	plugins  map[id]*served
	entries  []Entry
}

type id struct {
	kind plugins.Kind
	name string
}

// served is one plugin of one binary.
type served struct {
	plugins.Description

	binary *binary
}

// New makes a host and starts nothing.
func New(opts Options) (*Host, error) {
	if opts.Dirs == nil {
		opts.Dirs = SearchPath(os.Getenv)
	}
	sockets, err := openSockets()
	if err != nil {
		return nil, err
	}
	return &Host{
		opts: opts, sockets: sockets, plugins: map[id]*served{},
		startTimeout: 20 * time.Second, maxCrashes: 5, firstBackoff: 100 * time.Millisecond,
	}, nil
}

// Agent is the agent of that name. Nothing is started before its first call.
func (h *Host) Agent(ctx context.Context, name string) (agent.Agent, record.PluginUsed, error) {
	s, err := h.lookup(ctx, plugins.KindAgent, name)
	if err != nil {
		return nil, record.PluginUsed{}, err
	}
	return agent.NewClient(s.conn(), name), s.used(), nil
}

// Environment is the environment of that name, whose optional methods fail with
// environment.ErrUnsupported if the plugin does not have them.
func (h *Host) Environment(ctx context.Context, name string) (environment.Environment, record.PluginUsed, error) {
	s, err := h.lookup(ctx, plugins.KindEnvironment, name)
	if err != nil {
		return nil, record.PluginUsed{}, err
	}
	return environment.NewClient(s.conn(), name), s.used(), nil
}

// Incarnation is the number of the process, from 1, that answers the next call
// to an environment: when it is another than before, the process before has
// ended, and with it what lived in it. 0: no such environment is known.
func (h *Host) Incarnation(environment string) int {
	h.mu.Lock()
	s := h.plugins[id{plugins.KindEnvironment, environment}]
	h.mu.Unlock()
	if s == nil {
		return 0
	}
	return s.binary.incarnation()
}

// Verifier is the verifier of that name, which is a Rewriter if the plugin is,
// and what it said of itself.
func (h *Host) Verifier(ctx context.Context, name string) (verifier.Verifier, verifier.Traits, record.PluginUsed, error) {
	s, err := h.lookup(ctx, plugins.KindVerifier, name)
	if err != nil {
		return nil, verifier.Traits{}, record.PluginUsed{}, err
	}
	return verifier.NewClient(s.conn(), name, s.Capabilities), *s.Verifier, s.used(), nil
}

// VerifierOwnProcess is the verifier of that name in a process of its own, which is
// started now and serves this caller alone. stop ends it.
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

// Schema is the configuration that a plugin takes.
func (h *Host) Schema(ctx context.Context, kind plugins.Kind, name string) (config.Schema, error) {
	s, err := h.lookup(ctx, kind, name)
	if err != nil {
		return config.Schema{}, err
	}
	return s.Schema, nil
}

// Validate asks a plugin about a configuration, and starts it for that; none
// means that it is good.
func (h *Host) Validate(ctx context.Context, kind plugins.Kind, name string, conf json.RawMessage) ([]config.Problem, error) {
	s, err := h.lookup(ctx, kind, name)
	if err != nil {
		return nil, err
	}
	return plugins.Validate(ctx, s.conn(), kind, name, conf)
}

// Entry is one plugin, or one binary that could not be asked.
type Entry struct {
	plugins.Description

	Protocol   int    `json:"protocol"`              // number that host and plugin speak
	Path       string `json:"path"`                  // of the binary
	Digest     string `json:"digest"`                // of the binary: sha256:…
	ShadowedBy string `json:"shadowed_by,omitempty"` // binary that comes first and serves the same name
	Error      string `json:"error,omitempty"`       // why the binary could not be asked; it has no description then
}

// List is every plugin that was found, in search order, with what is odd about
// it, which is for the caller to say: the log does not say it, too.
func (h *Host) List(ctx context.Context) ([]Entry, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.scan(ctx, zerolog.Nop()); err != nil {
		return nil, err
	}
	return append([]Entry(nil), h.entries...), nil
}

// Stop ends every process: politely, after two seconds by force. The host is
// of no use afterwards. Idempotent.
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
	h.sockets.close(h.opts.Log)
}

func (s *served) used() record.PluginUsed {
	return record.PluginUsed{Kind: string(s.Kind), Name: s.Name, Version: s.Version, Digest: s.binary.digest}
}

func (s *served) conn() conn {
	return conn{binary: s.binary, who: fmt.Sprintf("%s %q", s.Kind, s.Name)}
}
