// Package models is the interface between attempts and the gateway: it gives a
// session its models, which serve requests only while the session allows it.
//
// It knows no provider and no wire format.
package models

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/verifier"
)

// ErrRateLimited means that a provider accepts no more requests at the moment.
var ErrRateLimited = errors.New("rate limited")

// Gateway gives sessions their models.
type Gateway interface {
	// Session opens the models of one session. They refuse requests until Allow.
	Session(ctx context.Context, spec Spec) (Session, error)
}

// Spec says which models a session needs, and for which trial, attempt and
// role.
type Spec struct {
	Trial      string
	Attempt    int
	Task       string // its name
	Repetition int
	Role       string // agent, user, judge
	Verifier   string // of the role judge: its name, which is in the usage
	Models     map[string]*cell.Model
	Budget     cell.Budget // shared by all sessions of the role, and of the verifier, in the attempt
	Hosted     bool        // tools that a provider runs itself, such as a search, may be used
	// Agent is the label of the agent, and InFlight the largest number of
	// concurrent requests of all sessions with the label; 0: no such limit.
	Agent    string
	InFlight int
	// Dir is the folder of the attempt. Append adds a line of JSON to a file in
	// it; nil writes nothing.
	Dir    string
	Append func(file string, line any)
	// Mask removes the secrets of the attempt from a body before it is recorded;
	// nil: it has none.
	Mask func(body []byte) []byte
	// Dialects are the dialects that the plugin speaks, for an endpoint that
	// can choose.
	Dialects []model.Dialect
	// Inside opens a loopback port in the sandbox for the endpoint; nil when
	// the session has no sandbox.
	Inside func(ctx context.Context, port int, serve func(net.Conn)) (*host.Port, error)
}

// Refusal says why the models of a session are no longer served: a request did
// not fit into a budget, or the provider cannot serve anyone.
type Refusal struct {
	Scope    record.Scope // of the budget, or of what the provider ends; empty: the attempt
	First    bool         // the budget was untouched: it is too small for any such request
	Provider bool         // the provider is the cause
	Err      error
}

// State is what is known of the requests of a session so far.
type State struct {
	// Refusal is the reason why Spent was closed; nil before.
	Refusal *Refusal
	// Down is the reason why the provider could not serve, or nil. An error
	// that wraps ErrRateLimited makes the attempt rate_limited, any other error
	// model_error.
	Down error
	// GaveUp is the reason why the provider had not served the last request when
	// its client gave up or the turn ended, or nil. It wraps ErrRateLimited if the
	// request waited for the provider's rate limit.
	GaveUp error
	// Refused is the reason why the provider refused the last request because
	// of its content, although it serves others; nil if it did not.
	Refused error
	Last    *record.Exchange // the last request; nil if there was none
	Served  bool             // there were requests, and each got a complete response
}

// Session is the models of one session.
type Session interface {
	Endpoints() map[string]model.Endpoint
	// Variables returns the environment variables by which libraries of the
	// providers find the models in the sandbox: keys and base addresses, by
	// name. If several models fit a name, it belongs to "default", or else to
	// the first by name. Empty without Inside.
	Variables() (keys, addresses map[string]string)
	// Allow lets requests through, until Revoke.
	Allow(ctx context.Context)
	Revoke(ctx context.Context) error
	// Spent is closed when a budget refuses a request, or a provider cannot
	// serve anyone.
	Spent() <-chan struct{}
	State() State
	// Silent reports whether a request that was sent before since is still
	// waiting for the first byte of its response.
	Silent(since time.Time) bool
	// Waited is how long requests have waited for a rate limit so far.
	Waited() time.Duration
	Usage() []record.Usage
	// Findings are unusual things about the requests.
	Findings() []verifier.Finding
	Close(ctx context.Context) error
}
