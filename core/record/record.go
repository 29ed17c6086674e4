// Package record holds the vocabulary and the files in which a run is recorded:
// outcomes, ends, integrity, phases, findings. Everything that writes or reads
// a run folder uses these types.
//
// It must hold no behaviour beyond what follows from a value itself: no files,
// no plugins, no clocks.
package record

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Outcome is the outcome of an attempt. Every planned trial has exactly one, so
// that the number of planned trials is the sum over all outcomes.
type Outcome string

// The outcomes. The zero value is not valid.
const (
	Passed             Outcome = "passed"
	Failed             Outcome = "failed"
	Scored             Outcome = "scored" // finished; the task has no pass rule
	AgentError         Outcome = "agent_error"
	EnvironmentError   Outcome = "environment_error"
	VerifierError      Outcome = "verifier_error"
	JudgeError         Outcome = "judge_error" // a model that judges replied with no judgment
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

// Outcomes lists all outcomes in the order in which tables print them.
var Outcomes = []Outcome{
	Passed, Failed, Scored, AgentError, EnvironmentError, VerifierError, JudgeError, ModelError, UserError,
	RateLimited, PluginCrashed, ArtifactMissing, IntegrityViolation, TaskInvalid, Preempted, Cancelled, NotRun,
}

// Measured reports whether the outcome alone says something about the agent.
// Such attempts are never run again.
func (o Outcome) Measured() bool {
	switch o {
	case Passed, Failed, Scored, AgentError:
		return true
	default:
		return false
	}
}

// MeasuredAfter reports whether an attempt with this outcome counts as
// measured; end is how its agent ended. In addition to those of Measured, it
// counts attempts without a result whose agent had worked: the agent's changes
// in the sandbox may be why there is no result, and an agent must not be able
// to remove an attempt from the count. A verifier that fails for a cause
// outside of the sandbox gives another outcome: judge_error, model_error,
// plugin_crashed or environment_error.
func (o Outcome) MeasuredAfter(end AgentEnd) bool {
	switch o {
	case VerifierError, ArtifactMissing, IntegrityViolation:
		return end != ""
	default:
		return o.Measured()
	}
}

// Infrastructure reports whether the outcome is about the infrastructure: the
// machine, a provider, a plugin. A summary is marked when there are too many of
// them.
func (o Outcome) Infrastructure() bool {
	switch o {
	case EnvironmentError, VerifierError, JudgeError, ModelError, UserError, RateLimited, PluginCrashed, Preempted:
		return true
	default:
		return false
	}
}

// Final reports whether an attempt with this outcome settles its trial: neither
// resume nor retry runs it again unless told to.
func (o Outcome) Final() bool {
	switch o {
	case Preempted, Cancelled, NotRun:
		return false
	default:
		return true
	}
}

// AgentEnd says how the agent's last turn ended. Empty means that the agent
// never began.
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
	EndedEarly  AgentEnd = "ended_early" // by a person
)

// Integrity says how far the agent can have influenced the result.
type Integrity string

// The integrities, best first.
const (
	Checked  Integrity = "checked"
	Exposed  Integrity = "exposed"
	Violated Integrity = "violated"
	Unknown  Integrity = "unknown" // the attempt was never verified
)

// PhaseName is the name of a part of an attempt.
type PhaseName string

// The phases, in order. Those of a stage repeat.
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

// Boundary is the party that an error is attributed to.
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

// Phase is a phase that took place.
type Phase struct {
	Name    PhaseName     `json:"name"`
	Stage   string        `json:"stage,omitempty"`
	Round   int           `json:"round,omitempty"`
	Turn    int           `json:"turn,omitempty"`
	Service string        `json:"service,omitempty"` // the sidecar that it is about; empty for the phase of all sidecars
	Who     Boundary      `json:"who"`               // whose work it was, and who is responsible for an error in it
	Start   time.Time     `json:"start"`
	End     time.Time     `json:"end,omitzero"`        // absent while the phase is in progress
	Frozen  time.Duration `json:"frozen_ns,omitempty"` // part of the phase that is charged to no role
	Error   string        `json:"error,omitempty"`
}

// Sidecar is the state of one additional container at the end. Its start is a
// phase with the name services.
type Sidecar struct {
	Name  string                 `json:"name"`
	Image environment.ImageFacts `json:"image"`
	Exit  *int                   `json:"exit,omitempty"` // exit code of its program, if that has ended; negative: number of the signal that killed it
	Lost  string                 `json:"lost,omitempty"` // why its container was gone; empty: it was not gone
	Log   string                 `json:"log,omitempty"`  // file of the attempt with the last 64 KiB of its program's output; empty: no output
}

// Error is a failure and its effect on an attempt. The error that decided the
// attempt is in its result.
type Error struct {
	Boundary Boundary  `json:"boundary"`
	Phase    PhaseName `json:"phase"`
	Stage    string    `json:"stage,omitempty"`
	Message  string    `json:"message"`
	Retry    bool      `json:"retryable,omitempty"`
	// Stops is the part of the run that cannot continue after this failure,
	// because the other trials of the cell, or of the run, would fail in the
	// same way. Empty means that they continue.
	Stops Scope `json:"stops,omitempty"`

	Outcome Outcome `json:"-"` // of the attempt, and of the stage that it ended
	Err     error   `json:"-"` // the cause, until Message is written
}

// Error returns the text of the cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Scope is a part of a run.
type Scope string

// The scopes.
const (
	ScopeCell Scope = "cell"
	ScopeRun  Scope = "run"
)

// Finding is something unusual in an attempt, and who reported it.
type Finding struct {
	verifier.Finding
	By    string    `json:"by"` // core, or the name of a verifier or an environment
	Phase PhaseName `json:"phase,omitempty"`
	Stage string    `json:"stage,omitempty"`
}

// Usage is the use of models by one role.
type Usage struct {
	Role            string   `json:"role"`
	Verifier        string   `json:"verifier,omitempty"` // of the role judge: the verifier that the models were given to
	Model           string   `json:"model"`
	FallbackFor     string   `json:"fallback_for,omitempty"` // the model that should have served these requests; empty: it is Model
	Requests        int64    `json:"requests"`
	InputTokens     int64    `json:"input_tokens"` // including cached
	CachedTokens    int64    `json:"cached_tokens,omitempty"`
	CacheWrite      int64    `json:"cache_write_tokens,omitempty"`
	OutputTokens    int64    `json:"output_tokens"`
	ReasoningTokens int64    `json:"reasoning_tokens,omitempty"`
	CostUSD         *float64 `json:"cost_usd"`                     // null: not known, which differs from zero
	Estimated       int64    `json:"estimated_requests,omitempty"` // number of Requests for which the provider reported no usage, or an implausible one
	WaitedMS        int64    `json:"waited_ms,omitempty"`
}

// Add adds b. A cost that is not known makes the sum one that is not known.
func (u *Usage) Add(b *Usage) {
	u.Requests += b.Requests
	u.InputTokens += b.InputTokens
	u.CachedTokens += b.CachedTokens
	u.CacheWrite += b.CacheWrite
	u.OutputTokens += b.OutputTokens
	u.ReasoningTokens += b.ReasoningTokens
	u.Estimated += b.Estimated
	if u.CostUSD == nil || b.CostUSD == nil {
		u.CostUSD = nil
		return
	}
	sum := *u.CostUSD + *b.CostUSD
	u.CostUSD = &sum
}

// RoleJudge is the role of models that verifiers use.
const RoleJudge = "judge"

// PluginUsed is a plugin that was used in an attempt.
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
	// VerifierImage is the image of the sandbox in which the stage was verified,
	// if that was not the agent's: in modes image and separate.
	VerifierImage *environment.ImageFacts `json:"verifier_image,omitempty"`
	// Session is the agent's session, by the name of its folder in agent/. Stages
	// with the same one share a conversation. Absent for a task of one stage.
	Session string `json:"session,omitempty"`
}

// LastTurn describes the last turn of an agent that did not yield.
type LastTurn struct {
	ExitCode int       `json:"exit_code,omitempty"` // of its program
	Reason   string    `json:"reason,omitempty"`    // why it ended, as reported by its plugin, often with the last lines of its program's output
	Message  string    `json:"message,omitempty"`   // the last message of the agent
	Exchange *Exchange `json:"last_exchange,omitempty"`
}

// Exchange is the last request of an agent to its models.
type Exchange struct {
	Time  time.Time `json:"time"`
	Model string    `json:"model"`
	// FallbackFor is the model that should have served the request. Empty: it
	// is Model.
	FallbackFor string `json:"fallback_for,omitempty"`
	// Key is the position of the key in api_keys, from 1. 0: the model has one
	// key, or none.
	Key int `json:"key,omitempty"`

	Status   int    `json:"status"`             // HTTP status; 0: there was no answer
	Error    string `json:"error,omitempty"`    // error of the gateway itself
	Upstream string `json:"upstream,omitempty"` // error that the provider reported
	Broken   string `json:"broken,omitempty"`   // which side cut the answer off: provider, client or gateway
	Stop     string `json:"stop,omitempty"`     // why the model stopped, in the provider's word; empty: not known
}

// Regraded names the origin of an attempt that was only verified.
type Regraded struct {
	Attempt    int    `json:"attempt"`            // number of the origin
	Files      bool   `json:"files,omitempty"`    // its kept files were used; otherwise only its record
	TaskDigest string `json:"origin_task_digest"` // of the task on which the agent worked
}

// Worker is the process that made an attempt, in a run whose attempts are made by
// workers on other machines.
type Worker struct {
	Pilot string `json:"pilot"`          // unique in the run
	Node  string `json:"node,omitempty"` // its machine
	Job   string `json:"job,omitempty"`  // of the scheduler of a cluster; empty: the user started it
	// Lost says why the work is lost: the worker was not heard of any more. The
	// process that schedules the run then wrote the result. Absent: the worker
	// wrote it.
	Lost string `json:"lost,omitempty"`
}

// Result is result.json: one attempt.
type Result struct {
	Version int `json:"version"` // version of the format of this file: 1
	// Regraded says that only the verification is of this attempt. Its agent, what
	// it used and how it ended are those of the origin. Absent: all is of this
	// attempt.
	Regraded *Regraded `json:"regraded,omitempty"`
	// Files is the archive with the files of the sandbox that differed from the
	// image when the agent had finished, below the folder of the attempt. Absent:
	// they were not kept.
	Files      string             `json:"files,omitempty"`
	Run        string             `json:"run"`
	Trial      string             `json:"trial"` // full trial id
	Task       string             `json:"task"`
	TaskDigest string             `json:"task_digest"`
	Cell       map[string]string  `json:"cell"`
	Repetition int                `json:"repetition"`
	Attempt    int                `json:"attempt"`
	Host       string             `json:"host"`
	Worker     *Worker            `json:"worker,omitempty"` // absent: the process that scheduled the run made the attempt
	Berth      string             `json:"berth"`            // version of this program
	Outcome    Outcome            `json:"outcome"`
	AgentEnd   AgentEnd           `json:"agent_end,omitempty"`
	Integrity  Integrity          `json:"integrity"`
	Reasons    []string           `json:"integrity_reasons,omitempty"`
	Oracle     bool               `json:"oracle,omitempty"`
	Modified   []string           `json:"modified,omitempty"` // settings of the task that the experiment changed
	Mode       string             `json:"mode"`               // verification mode
	SameAs     string             `json:"same_as,omitempty"`  // the stronger mode that this result equals
	Graders    map[string]string  `json:"graders,omitempty"`  // plugins of the verifiers, by the names that the task uses
	Success    *task.Success      `json:"success,omitempty"`  // the rule of the attempt
	Scores     map[string]float64 `json:"scores,omitempty"`
	Score      *float64           `json:"score,omitempty"`  // the score that success and tables use
	Labels     map[string]string  `json:"labels,omitempty"` // of the verdicts that count; of a name, the last one
	Verdicts   []verifier.Verdict `json:"verdicts,omitempty"`
	Stages     []StageResult      `json:"stages,omitempty"`
	Phases     []Phase            `json:"phases"`
	Findings   []Finding          `json:"findings,omitempty"`
	Error      *Error             `json:"error,omitempty"`
	// Usage is the use of models. Of an attempt that was only verified, it is that of
	// the agent and the user of the origin, and of this attempt's own judges.
	Usage     []Usage                    `json:"usage,omitempty"`
	Claimed   []agent.Claim              `json:"claimed_usage,omitempty"` // what the agent itself reported, by session
	Granted   *environment.Granted       `json:"granted,omitempty"`
	Image     *environment.ImageFacts    `json:"image,omitempty"`
	Remains   *environment.Remains       `json:"remains,omitempty"`
	Sidecars  []Sidecar                  `json:"sidecars,omitempty"`
	Plugins   []PluginUsed               `json:"plugins,omitempty"`
	Bundles   []BundleUsed               `json:"bundles,omitempty"` // of the agent
	Start     time.Time                  `json:"start"`
	End       time.Time                  `json:"end"`
	Steps     int64                      `json:"steps,omitempty"` // that the agent took, in all its sessions
	AgentTime time.Duration              `json:"agent_time_ns"`   // charged to the agent: its turns without frozen and waited time
	Extra     map[string]json.RawMessage `json:"extra,omitempty"`
}

// Worked returns the use of models by the agent and the simulated user.
func (r *Result) Worked() []Usage {
	return slices.DeleteFunc(slices.Clone(r.Usage), func(u Usage) bool { return u.Role == RoleJudge })
}

// Spent returns the use of models that is this attempt's own: sums over attempts
// count the work that was verified again once.
func (r *Result) Spent() []Usage {
	if r.Regraded == nil {
		return r.Usage
	}
	return slices.DeleteFunc(slices.Clone(r.Usage), func(u Usage) bool { return u.Role != RoleJudge })
}
