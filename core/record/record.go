// Package record holds the words in which a run is written down: outcomes,
// ends, integrity, phases, findings, and the files made of them. Everything
// that writes or reads a run folder uses these types and no others.
//
// It must hold no behaviour beyond what follows from a value itself: no files,
// no plugins, no clocks.
package record

import (
	"encoding/json"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Outcome is what came of an attempt. Every planned trial has exactly one, so
// that planned = sum over outcomes.
type Outcome string

// The outcomes. The zero value is not valid.
const (
	Passed             Outcome = "passed"
	Failed             Outcome = "failed"
	Scored             Outcome = "scored" // finished; the task has no pass rule
	AgentError         Outcome = "agent_error"
	EnvironmentError   Outcome = "environment_error"
	VerifierError      Outcome = "verifier_error"
	ModelError         Outcome = "model_error"
	UserError          Outcome = "user_error" // the simulated user failed
	RateLimited        Outcome = "rate_limited"
	PluginCrashed      Outcome = "plugin_crashed"
	ArtifactMissing    Outcome = "artifact_missing"
	IntegrityViolation Outcome = "integrity_violation"
	TaskInvalid        Outcome = "task_invalid"
	Preempted          Outcome = "preempted"
	Cancelled          Outcome = "cancelled"
	NotRun             Outcome = "not_run"
)

// Outcomes are all of them, in the order in which tables print them.
var Outcomes = []Outcome{
	Passed, Failed, Scored, AgentError, EnvironmentError, VerifierError, ModelError, UserError, RateLimited,
	PluginCrashed, ArtifactMissing, IntegrityViolation, TaskInvalid, Preempted, Cancelled, NotRun,
}

// Measured is true for outcomes that say something about the agent, whatever
// else is known. Attempts with them are never run again.
func (o Outcome) Measured() bool {
	switch o {
	case Passed, Failed, Scored, AgentError:
		return true
	default:
		return false
	}
}

// MeasuredAfter is true where an attempt with this outcome counts as measured;
// end is how its agent ended. Beside those that Measured names these are
// attempts without a result whose agent had worked: what it left in the sandbox
// may be why there is no result, and an agent must not be able to take an
// attempt out of the count. A verifier that fails for a cause outside of the
// sandbox gives another outcome: model_error, plugin_crashed or
// environment_error.
func (o Outcome) MeasuredAfter(end AgentEnd) bool {
	switch o {
	case VerifierError, ArtifactMissing, IntegrityViolation:
		return end != ""
	default:
		return o.Measured()
	}
}

// Infrastructure is true for outcomes that say something about us: the machine,
// a provider, a plugin. A headline is marked when there are too many.
func (o Outcome) Infrastructure() bool {
	switch o {
	case EnvironmentError, VerifierError, ModelError, UserError, RateLimited, PluginCrashed, Preempted:
		return true
	default:
		return false
	}
}

// Final is true when an attempt with this outcome settles its trial: neither
// resume nor retry runs it again unless told to.
func (o Outcome) Final() bool {
	switch o {
	case Preempted, Cancelled, NotRun:
		return false
	default:
		return true
	}
}

// AgentEnd is how the agent's last turn ended. Empty: the agent never began.
type AgentEnd string

// The agent ends.
const (
	Yielded     AgentEnd = "yielded"
	Timeout     AgentEnd = "timeout"
	Budget      AgentEnd = "budget"
	MaxSteps    AgentEnd = "max_steps"
	Refused     AgentEnd = "refused"
	Crashed     AgentEnd = "crashed"
	SandboxLost AgentEnd = "sandbox_lost"
)

// Integrity says how far the result can have been influenced by the agent.
type Integrity string

// The integrities, best first.
const (
	Checked  Integrity = "checked"
	Exposed  Integrity = "exposed"
	Violated Integrity = "violated"
	Unknown  Integrity = "unknown" // the attempt never came to be verified
)

// PhaseName is one part of the life of an attempt.
type PhaseName string

// The phases, in their order. Those of a stage repeat.
const (
	PhasePrepare  PhaseName = "prepare"
	PhaseCreate   PhaseName = "create"
	PhaseServices PhaseName = "services"
	PhaseSetup    PhaseName = "setup"
	PhaseTurn     PhaseName = "turn"
	PhaseHooks    PhaseName = "hooks"
	PhaseFreeze   PhaseName = "freeze"
	PhaseCopy     PhaseName = "copy"
	PhaseJudge    PhaseName = "judge"
	PhaseThaw     PhaseName = "thaw"
	PhaseUser     PhaseName = "user"
	PhaseSettle   PhaseName = "settle"
	PhaseCollect  PhaseName = "collect"
	PhaseVerify   PhaseName = "verify"
	PhaseClean    PhaseName = "clean"
	PhaseDestroy  PhaseName = "destroy"
	PhasePublish  PhaseName = "publish"
)

// Boundary is who an error is attributed to.
type Boundary string

// The boundaries.
const (
	ByConfig      Boundary = "config"
	ByAgent       Boundary = "agent"
	ByEnvironment Boundary = "environment"
	ByVerifier    Boundary = "verifier"
	ByModel       Boundary = "model"
	ByUser        Boundary = "user" // the simulated one
	ByCore        Boundary = "core"
	ByTask        Boundary = "task"
)

// Phase is one phase as it happened.
type Phase struct {
	Name    PhaseName     `json:"name"`
	Stage   string        `json:"stage,omitempty"`
	Round   int           `json:"round,omitempty"`
	Turn    int           `json:"turn,omitempty"`
	Service string        `json:"service,omitempty"` // the sidecar that it was about, beside the phase of all
	Who     Boundary      `json:"who"`               // whose work it was, and whose fault an error in it is
	Start   time.Time     `json:"start"`
	End     time.Time     `json:"end,omitzero"`        // absent as long as it is under way
	Frozen  time.Duration `json:"frozen_ns,omitempty"` // of it, charged to nobody
	Error   string        `json:"error,omitempty"`
}

// Sidecar is one container beside the main one, as it was at the end. Its start
// is a phase of the name services.
type Sidecar struct {
	Name  string                 `json:"name"`
	Image environment.ImageFacts `json:"image"`
	Exit  *int                   `json:"exit,omitempty"` // exit code of its program, if that has ended; negative: by that signal
	Lost  string                 `json:"lost,omitempty"` // why its container was gone; empty: it was not
	Log   string                 `json:"log,omitempty"`  // file of the attempt with the last 64 KiB that its program wrote; empty: it wrote nothing
}

// Error is a failure with what it makes of an attempt. The one that decided the
// attempt is in its result.
type Error struct {
	Boundary Boundary  `json:"boundary"`
	Phase    PhaseName `json:"phase"`
	Stage    string    `json:"stage,omitempty"`
	Message  string    `json:"message"`
	Retry    bool      `json:"retryable,omitempty"`
	// Stops is what cannot go on after this failure: the other trials of the
	// cell, or of the run, would fail in the same way. Empty: they go on.
	Stops Scope `json:"stops,omitempty"`

	Outcome Outcome `json:"-"` // of the attempt, and of the stage that it ended
	Err     error   `json:"-"` // the cause, until Message is written
}

// Error is the text of the cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Err.Error()
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Scope is a part of a run.
type Scope string

// The scopes.
const (
	ScopeCell Scope = "cell"
	ScopeRun  Scope = "run"
)

// Finding is something odd that was seen in an attempt, by whom.
type Finding struct {
	verifier.Finding
	By    string    `json:"by"` // core, or the name of a verifier or an environment
	Phase PhaseName `json:"phase,omitempty"`
	Stage string    `json:"stage,omitempty"`
}

// Usage is what models were used, by role.
type Usage struct {
	Role            string   `json:"role"`
	Model           string   `json:"model"`
	Requests        int64    `json:"requests"`
	InputTokens     int64    `json:"input_tokens"` // including cached
	CachedTokens    int64    `json:"cached_tokens,omitempty"`
	CacheWrite      int64    `json:"cache_write_tokens,omitempty"`
	OutputTokens    int64    `json:"output_tokens"`
	ReasoningTokens int64    `json:"reasoning_tokens,omitempty"`
	CostUSD         *float64 `json:"cost_usd"`                     // null: not known, which is not zero
	Estimated       int64    `json:"estimated_requests,omitempty"` // of Requests, those whose usage the provider did not tell, or not credibly
	WaitedMS        int64    `json:"waited_ms,omitempty"`
}

// PluginUsed is a plugin as it was in an attempt.
type PluginUsed struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Digest  string `json:"digest"` // of the binary: sha256:…
}

// BundleUsed is a bundle of programs that was mounted in an attempt.
type BundleUsed struct {
	Name   string `json:"name"`   // "name@version"
	Digest string `json:"digest"` // of its content: sha256:…
}

// StageResult is the outcome of one stage.
type StageResult struct {
	Name     string             `json:"name"`
	Outcome  Outcome            `json:"outcome"`
	AgentEnd AgentEnd           `json:"agent_end,omitempty"`
	Rewards  map[string]float64 `json:"rewards,omitempty"`
	Error    *Error             `json:"error,omitempty"`
	LastTurn *LastTurn          `json:"last_turn,omitempty"` // absent when the agent yielded
}

// LastTurn is what is known of the last turn of an agent that did not yield.
type LastTurn struct {
	ExitCode int       `json:"exit_code,omitempty"` // of its program
	Reason   string    `json:"reason,omitempty"`    // why it ended, as its plugin says, often with the last lines that its program wrote
	Message  string    `json:"message,omitempty"`   // the last message of the agent
	Exchange *Exchange `json:"last_exchange,omitempty"`
}

// Exchange is the last request of an agent to its models.
type Exchange struct {
	Time     time.Time `json:"time"`
	Model    string    `json:"model"`
	Status   int       `json:"status"`             // of HTTP; 0: there was no answer
	Error    string    `json:"error,omitempty"`    // what the gateway said itself
	Upstream string    `json:"upstream,omitempty"` // what the provider said went wrong
	Broken   string    `json:"broken,omitempty"`   // who cut the answer off: provider, client or gateway
}

// Result is result.json: one attempt.
type Result struct {
	Version    int                        `json:"version"` // of this file's form: 1
	Run        string                     `json:"run"`
	Trial      string                     `json:"trial"` // full trial id
	Task       string                     `json:"task"`
	TaskDigest string                     `json:"task_digest"`
	Cell       map[string]string          `json:"cell"`
	Repetition int                        `json:"repetition"`
	Attempt    int                        `json:"attempt"`
	Host       string                     `json:"host"`
	Berth      string                     `json:"berth"` // version of this program
	Outcome    Outcome                    `json:"outcome"`
	AgentEnd   AgentEnd                   `json:"agent_end,omitempty"`
	Integrity  Integrity                  `json:"integrity"`
	Reasons    []string                   `json:"integrity_reasons,omitempty"`
	Oracle     bool                       `json:"oracle,omitempty"`
	Modified   []string                   `json:"modified,omitempty"` // what the experiment changed of what the task asks
	Mode       string                     `json:"mode"`               // verification mode
	SameAs     string                     `json:"same_as,omitempty"`  // the stronger mode that this result equals
	Scores     map[string]float64         `json:"scores,omitempty"`
	Score      *float64                   `json:"score,omitempty"` // the one that success and tables use
	Verdicts   []verifier.Verdict         `json:"verdicts,omitempty"`
	Stages     []StageResult              `json:"stages,omitempty"`
	Phases     []Phase                    `json:"phases"`
	Findings   []Finding                  `json:"findings,omitempty"`
	Error      *Error                     `json:"error,omitempty"`
	Usage      []Usage                    `json:"usage,omitempty"`
	Claimed    []agent.Claim              `json:"claimed_usage,omitempty"` // what the agent says of that, by session
	Granted    *environment.Granted       `json:"granted,omitempty"`
	Image      *environment.ImageFacts    `json:"image,omitempty"`
	Remains    *environment.Remains       `json:"remains,omitempty"`
	Sidecars   []Sidecar                  `json:"sidecars,omitempty"`
	Plugins    []PluginUsed               `json:"plugins,omitempty"`
	Bundles    []BundleUsed               `json:"bundles,omitempty"` // of the agent
	Start      time.Time                  `json:"start"`
	End        time.Time                  `json:"end"`
	AgentTime  time.Duration              `json:"agent_time_ns"` // charged to the agent: turns less frozen and waited time
	Extra      map[string]json.RawMessage `json:"extra,omitempty"`
}
