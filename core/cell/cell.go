// Package cell is one point of the matrix, resolved, as attempts are made of it.
//
// It must not decide anything, and knows no configuration.
package cell

import (
	"encoding/json"
	"time"

	"github.com/berth-eval/berth/plugins/task"
)

// Cell is one point of the matrix, resolved: secrets are plain values here,
// and their own list says which they are, so that they can be kept out of the
// record.
type Cell struct {
	Choices     map[string]string // axis to value, for the record
	Agent       Agent
	Environment Environment
	Verifiers   map[string]Verifier // by the name that tasks use; one that is missing is the plugin of that name
	User        *User               // nil: no simulated user
	Verify      task.Mode           // empty keeps the task's
	Success     *task.Success       // nil keeps the task's
	Limits      Limits
	Secrets     []string // values that must not reach a file
}

// Agent is the agent of a cell.
type Agent struct {
	Plugin string
	Oracle bool // is given the reference solution
	Config json.RawMessage
	Env    map[string]string
	Models map[string]*Model // by the name that the plugin asks for
}

// Environment is the environment of a cell.
type Environment struct {
	Plugin  string
	Config  json.RawMessage
	Env     map[string]string // wins over the task's
	Network *task.Network     // what the experiment grants; nil grants what the task asks
	Limits  task.Limits       // replace those of the task where they are not zero
}

// Verifier is what the experiment adds to a verifier that a task names.
type Verifier struct {
	Plugin string // empty: the name
	Config json.RawMessage
	Env    map[string]string
	Models map[string]*Model
}

// User plays the simulated user.
type User struct {
	Agent
	Persona string
	Time    time.Duration // of one message; 0: the usual
	Budget  Budget        // of its models, in all its sessions of the attempt
}

// Limits bound an attempt. Zero keeps what the task says.
type Limits struct {
	AgentTime          time.Duration // of each turn
	AgentTimeFactor    float64
	VerifierTime       time.Duration
	VerifierTimeFactor float64
	StartTime          time.Duration // of create
	StartTimeFactor    float64
	MaxSteps           int64
	Budget             Budget // of the agent's models, in all its sessions of the attempt
}

// Budget bounds what models are used for. Nil means no bound.
type Budget struct {
	CostUSD  *float64
	Tokens   *int64 // input and output
	Requests *int64
}
