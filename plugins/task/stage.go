package task

import (
	"encoding/json"
	"slices"
)

// Stage is one instruction with its own verification inside a task.
type Stage struct {
	// Name is unique in the task and safe as the name of a folder.
	Name string `json:"name"`
	// Instruction is what the agent is told: text, and files of the task. Where
	// it is empty, only agents that use no model can run the stage.
	Instruction []Part `json:"instruction"`
	// Agent and Verify bound the two phases.
	Agent  Phase `json:"agent"`
	Verify Phase `json:"verify"`
	// Verifiers run in this order; each sees the verdicts of those before it.
	Verifiers []VerifierUse `json:"verifiers"`
	// Mode overrides the mode of the task for this stage; empty keeps it.
	Mode Mode `json:"mode,omitempty"`
	// VerifyIn is the environment of a stage that is verified separately, because
	// the task declares it or the experiment asks for it; nil means a fresh one
	// like that of the task.
	VerifyIn *Environment `json:"verify_in,omitempty"`
	// VerifyHealthcheck must pass in VerifyIn before the verifiers work there; nil
	// means none.
	VerifyHealthcheck *Healthcheck `json:"verify_healthcheck,omitempty"`
	// VerifyFilesInImage says that the image of VerifyIn holds the files of the
	// verifier, so that nothing is placed in it.
	VerifyFilesInImage bool `json:"verify_files_in_image,omitempty"`
	// Setup runs before the first turn, after the resources of the stage have
	// been placed. A command that fails ends the stage.
	Setup []Command `json:"setup,omitempty"`
	// Reference is the reference solution, for the oracle; nil means none.
	Reference *Reference `json:"reference,omitempty"`
	// Healthcheck must pass after Setup; nil means none.
	Healthcheck *Healthcheck `json:"healthcheck,omitempty"`
	// Hooks run after the last turn, after the agent's access is cut and before
	// anything is collected. A failure is recorded and does not end the
	// attempt.
	Hooks []Command `json:"hooks,omitempty"`
	// Captures are taken by the surface at the same time as the hooks.
	Captures []Capture `json:"captures,omitempty"`
	// Surface is what the agent observes and acts on; nil means none.
	Surface *Surface `json:"surface,omitempty"`
	// Artifacts are collected from the sandbox before verification.
	Artifacts []Artifact `json:"artifacts,omitempty"`
	// PriorTrajectory names a resource (by Name) with the trajectory that the
	// agent continues from; empty means none.
	PriorTrajectory string `json:"prior_trajectory,omitempty"`
	// SameSession continues the session of the stage before.
	SameSession bool `json:"same_session,omitempty"`
	// MinScores end the task after this stage unless each named score reaches
	// its value; a missing score does not. Ignored without verification.
	MinScores map[string]float64 `json:"min_scores,omitempty"`
}

// Part is a piece of an instruction. Exactly one of Text and Resource is set.
type Part struct {
	Text string `json:"text,omitempty"`
	// Resource is the Name of a resource that the agent may see.
	Resource string `json:"resource,omitempty"`
	// MediaType is that of the resource, such as "image/png".
	MediaType string `json:"media_type,omitempty"`
}

// Phase bounds the agent's or the verifier's part of a stage.
type Phase struct {
	// Time is the deadline; 0 means none.
	Time Duration `json:"time,omitempty"`
	// TimeKey names the setting of the task for Time, for messages. Empty: it has no
	// name.
	TimeKey string `json:"time_key,omitempty"`
	// Startup and Stall end a turn of the agent in which nothing is recorded or
	// logged for so long, from its start on and later; 0 means no bound. Time in
	// which the agent waits for a model's provider does not count. For the agent
	// only.
	Startup Duration `json:"startup,omitempty"`
	Stall   Duration `json:"stall,omitempty"`
	// User is a user name or a number in decimal; empty means the image's.
	User string `json:"user,omitempty"`
	Env  Env    `json:"env,omitempty"`
	// EnvFile names a file in the view of verifiers with the variables of Env, one
	// NAME=VALUE a line: what they judge may hold the values. Empty: there is none. For
	// the agent only.
	EnvFile string `json:"env_file,omitempty"`
	// Network replaces the environment's for this phase; nil keeps it.
	Network *Network `json:"network,omitempty"`
}

// VerifierUse names a verifier plugin and the task's settings for it.
type VerifierUse struct {
	Name string `json:"name"`
	// Advisory says that a verdict can do without it: its error is a finding, and
	// the verdicts of the others stand.
	Advisory bool `json:"advisory,omitempty"`
	// Settings is a JSON object, or empty.
	Settings json.RawMessage `json:"settings,omitempty"`
}

// Script holds the settings of a verifier that runs the task's own test program
// in the sandbox and reads the scores from files there. It is defined here
// because formats write it and verifiers read it.
type Script struct {
	// Command is the argv. It runs in the working directory of the sandbox as
	// the user of the verify phase, with its environment.
	Command []string `json:"command"`
	// Rewards are the files that may hold the scores. The first one that exists
	// counts alone.
	Rewards []RewardFile `json:"rewards"`
	// Reports are files with the result of each test, in CTRF or JUnit XML. None of
	// them has to exist.
	Reports []TestReport `json:"reports,omitempty"`
}

// TestReport is a file that the test program may write.
type TestReport struct {
	Path string `json:"path"`
	// Expected means that the test program names the file. If it does not exist, the
	// tests did probably not start.
	Expected bool `json:"expected,omitempty"`
}

// RewardFile is one place for scores that the test program may write.
type RewardFile struct {
	Path string `json:"path"`
	// Kind is "number" (one finite decimal, the score named Score) or "json"
	// (an object of names to finite numbers or booleans).
	Kind  string `json:"kind"`
	Score string `json:"score,omitempty"`
}

// Reference is a task's own solution.
type Reference struct {
	// Resource is the Name of a folder resource whose audience is the oracle
	// alone; its Place is where the solution belongs in the sandbox.
	Resource string `json:"resource"`
	// Argv runs it, in the working directory of the sandbox, as the user of
	// the agent phase.
	Argv []string `json:"argv"`
	// Env is added to the agent's and wins.
	Env Env `json:"env,omitempty"`
}

// Command runs in a sandbox or in one of its sidecars.
type Command struct {
	// Service is the name of a sidecar; empty means the main sandbox.
	Service string   `json:"service,omitempty"`
	Argv    []string `json:"argv"`
	// Dir is the working directory; empty means that of the sandbox.
	Dir  string `json:"dir,omitempty"`
	User string `json:"user,omitempty"`
	Env  Env    `json:"env,omitempty"`
	// Time is the deadline; 0 means that of the phase. TimeKey is as in Phase.
	Time    Duration `json:"time,omitempty"`
	TimeKey string   `json:"time_key,omitempty"`
}

// Service is a program of the task that runs next to the agent and is never
// counted as a process that the agent left.
type Service struct {
	Name    string  `json:"name"`
	Command Command `json:"command"`
	// Oneshot must end with exit code 0 before the next service starts. A
	// daemon is started again after the processes of the sandbox were killed.
	Oneshot bool `json:"oneshot,omitempty"`
	// Ready probes a daemon; nil means ready at once.
	Ready *Healthcheck `json:"ready,omitempty"`
}

// Healthcheck is a command that must end with exit code 0. Failures within
// StartPeriod do not count; after it, Retries failures in a row fail the check.
type Healthcheck struct {
	Argv          []string `json:"argv"`
	User          string   `json:"user,omitempty"`
	Interval      Duration `json:"interval"`
	Timeout       Duration `json:"timeout"`
	TimeKey       string   `json:"time_key,omitempty"` // as in Phase
	StartPeriod   Duration `json:"start_period,omitempty"`
	StartInterval Duration `json:"start_interval,omitempty"`
	Retries       int      `json:"retries"`
}

// Artifact is a file or folder that is collected from a sandbox.
type Artifact struct {
	// Source is a path in the sandbox, relative to its working directory
	// unless absolute.
	Source string `json:"source"`
	// To is the slash-separated path in the attempt's artifacts folder; empty
	// means the absolute path of the source.
	To string `json:"to,omitempty"`
	// Exclude are patterns of names and paths below the source to leave out.
	Exclude []string `json:"exclude,omitempty"`
	// Service is the name of a sidecar; empty means the main sandbox.
	Service string `json:"service,omitempty"`
	// Audience are the roles that see the copies, of RoleVerifier and RoleUser.
	// Empty means the verifier only. A verifier sees every artifact.
	Audience []Role `json:"audience,omitempty"`
}

// Capture is taken from a surface by the host.
type Capture struct {
	Name     string          `json:"name"`
	Settings json.RawMessage `json:"settings,omitempty"`
}

// Surface is what the agent may observe and do. Names are those of the
// environment plugin; empty lists mean all that it offers.
type Surface struct {
	// Level is the level, page or episode that Reset begins with.
	Level        string   `json:"level,omitempty"`
	Observations []string `json:"observations,omitempty"`
	Actions      []string `json:"actions,omitempty"`
	// Steps bounds the actions of the stage; 0 means no bound.
	Steps int `json:"steps,omitempty"`
	// StepsOf says what a step is: an action, or with StepsOfReplies all actions of
	// one reply of the model.
	StepsOf string `json:"steps_of,omitempty"`
}

// The values of Surface.StepsOf; empty means StepsOfActions.
const (
	StepsOfActions = "actions"
	StepsOfReplies = "replies"
)

// HasSurface reports whether a stage has a surface.
func (t *Task) HasSurface() bool {
	return slices.ContainsFunc(t.Stages, func(s Stage) bool { return s.Surface != nil })
}

// MCPServer is a tool server that the agent may use.
type MCPServer struct {
	Name string `json:"name"`
	// Transport is "stdio", "sse" or "streamable-http".
	Transport string   `json:"transport"`
	URL       string   `json:"url,omitempty"`
	Command   string   `json:"command,omitempty"`
	Args      []string `json:"args,omitempty"`
	Env       Env      `json:"env,omitempty"`
	// Headers are sent over HTTP.
	Headers Env `json:"headers,omitempty"`
}

// Skill is a folder with instructions for the agent. Exactly one of Dir and Resource
// is set.
type Skill struct {
	// Dir is a folder in the sandbox that holds skills.
	Dir string `json:"dir,omitempty"`
	// FromImage are the names of skills in Dir that the image must have.
	FromImage []string `json:"from_image,omitempty"`
	// Resource is the Name of a resource that the agent may see.
	Resource string `json:"resource,omitempty"`
}
