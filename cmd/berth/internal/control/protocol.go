// Package control changes a run while it runs, from another process: both ends of
// the run's socket, and what a resumed run takes over of the changes.
//
// The process that schedules a run calls [Serve], which makes a Unix socket for the
// user who owns the run. Another process, such as `berth ctl` or a page of `berth
// view`, calls [Find] with the folder of the run and then [Client.Status] and
// [Client.Do]:
//
//	c, err := control.Find(dir)
//	if errors.Is(err, control.ErrNoProcess) {
//		// no process runs it: show no buttons
//	}
//	answer, err := c.Do(ctx, control.Request{Action: control.Pause, Why: "the disk is full"})
//	if refused, ok := errors.AsType[*control.RefusedError](err); ok {
//		// say refused.Text to the person: nothing was changed
//	}
//
// A Client is safe for concurrent use. Who has it can do
// everything that the owner of the run can do to it: a server of pages must itself
// check that a request is a POST, comes from its own pages and has its token, and
// must ask before it sends Request.Yes. The socket is HTTP with JSON: GET /status
// answers with a [Status], POST /do takes a [Request] and answers with an [Answer].
//
// Every change is in the journal of the run, with the user, the time and the reason.
// The package must not decide what a change means for attempts, which core/run does.
package control

import (
	"errors"

	"github.com/berth-eval/berth/cmd/berth/output"
)

// The actions.
const (
	Pause    = "pause"    // no attempt begins
	Drain    = "drain"    // no attempt begins, and the run stops when those in progress have ended
	Continue = "continue" // attempts begin again
	Set      = "set"      // other limits of the run
	Cancel   = "cancel"   // a trial, or all trials of a cell
	EndTurn  = "end-turn" // of the agent; its attempt is graded with what is there
)

// Actions are all actions that change something.
var Actions = []string{Pause, Drain, Continue, Set, Cancel, EndTurn}

// The limits that Set changes.
const (
	InFlight = "in_flight" // attempts at the same time
	CostUSD  = "cost_usd"
	Tokens   = "tokens"
	Requests = "requests"
)

// Limits are the names of all limits.
var Limits = []string{InFlight, CostUSD, Tokens, Requests}

// Request asks a run for a change.
type Request struct {
	Action string `json:"action"`
	// Trial is the beginning of the id or folder of a trial, or the name of a task
	// with a single trial: for end-turn, and for cancel without Cell.
	Trial string `json:"trial,omitempty"`
	// Cell is the key or slug of a cell, for cancel without Trial.
	Cell string `json:"cell,omitempty"`
	// Set has new limits by name; null means that there is none.
	Set map[string]*float64 `json:"set,omitempty"`
	// Yes allows a larger budget than before.
	Yes bool `json:"yes,omitempty"`
	// Why is kept in the record; at most 1,000 bytes. Required for end-turn.
	Why string `json:"why,omitempty"`
}

// Answer says what a request changed.
type Answer = output.Ctl

// Status is the state of a run in progress.
type Status = output.CtlStatus

// The states of a run.
const (
	Running  = "running"
	Paused   = "paused"
	Draining = "draining"
	Stopping = "stopping" // for a reason that continue does not change
)

// RefusedError says that a run refused a request, and changed nothing.
type RefusedError struct{ Text string }

// Error is the reason.
func (e *RefusedError) Error() string { return e.Text }

// ErrNoProcess means that no process on this machine runs the run.
var ErrNoProcess = errors.New("no process runs it")
