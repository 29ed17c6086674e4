package output

import (
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store/node"
)

// Ctl is what `berth ctl` says of a change.
type Ctl struct {
	// Did describes what was done, and what could not be done of it.
	Did string `json:"did"`
	// Status is the state afterwards, without a list of attempts.
	Status CtlStatus `json:"status"`
}

// CtlStatus is what `berth ctl RUN status` says: the state of a run in progress.
type CtlStatus struct {
	Run  string `json:"run"` // id
	Dir  string `json:"dir"`
	Host string `json:"host"`
	PID  int    `json:"pid"`
	// State is running, paused, draining, or stopping for another reason.
	State string `json:"state"`
	// Why says why no attempt begins; empty: attempts begin.
	Why string `json:"why,omitempty"`
	// Planned, InProgress and Left count trials: all that this process has to run,
	// those that are running, and those that have not begun.
	Planned    int `json:"planned"`
	InProgress int `json:"in_progress"`
	Left       int `json:"left"`
	// Limits are in_flight, cost_usd, tokens and requests.
	Limits []CtlLimit `json:"limits"`
	// Attempts are those in progress, in the order in which they began, at most 1,000.
	Attempts []CtlAttempt `json:"attempts"`
}

// CtlLimit is a limit of the run.
type CtlLimit struct {
	Name string   `json:"name"`
	Most *float64 `json:"most"` // null: there is none
	// Used is what attempts that have ended used of it; of in_flight, the attempts in
	// progress.
	Used float64 `json:"used"`
}

// CtlAttempt is an attempt in progress.
type CtlAttempt struct {
	Trial   string           `json:"trial"` // id
	Task    string           `json:"task"`
	Cell    string           `json:"cell"` // slug
	Attempt int              `json:"attempt"`
	Began   time.Time        `json:"began"`
	Phase   record.PhaseName `json:"phase,omitempty"`
	Turn    int              `json:"turn,omitempty"`
	Steps   int              `json:"steps,omitempty"`
}

// CtlPointer is control.json of a run: where its socket is, while a process runs it.
type CtlPointer struct {
	Version int          `json:"version"` // of the format of this file: 1
	Socket  string       `json:"socket"`  // absolute
	Process node.Process `json:"process"` // that serves it
}
