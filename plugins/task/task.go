// Package task is the contract between task formats and the rest of Berth. It
// defines the data that a format reads from a folder, which can be stored as
// JSON without loss, the rules for this data, and a function that lists a
// dataset.
//
// It must not know any format, engine, agent or benchmark by name, must not
// open a sandbox, and must not hold a value that may be a secret: host
// variables stay templates ([Value]) until the moment they are used.
package task

import (
	"encoding/json"
	"path/filepath"
	"slices"
)

// Task is one problem: its instruction, its environment, and its verification.
// It is plain data that may be copied, stored and sent. It does not change
// after a format has created it.
type Task struct {
	// Name identifies the task within its dataset. It is never empty and holds
	// no control characters; "org/name" is usual.
	Name string `json:"name"`
	// Digest is "sha256:" and 64 hex digits over the content of the folder, by
	// the rule of the format. Equal digests mean the same task.
	Digest string `json:"digest"`
	// Format is the name of the format that made the task, FormatVersion what
	// the task's own files say about it. Both are for people.
	Format        string `json:"format,omitempty"`
	FormatVersion string `json:"format_version,omitempty"`
	// Version is the author's version of the task, empty when there is none.
	Version     string   `json:"version,omitempty"`
	Description string   `json:"description,omitempty"`
	Keywords    []string `json:"keywords,omitempty"`
	Authors     []string `json:"authors,omitempty"`
	// Metadata is the author's own data; Berth never interprets it.
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Labels are what tables of results can be grouped by.
	Labels `json:"labels,omitzero"`

	// Dir is the absolute path of the task's folder on this host. It is not part of
	// the task's identity and not in its JSON.
	Dir string `json:"-"`
	// File is the slash-separated path, within Dir, of the file that describes the
	// task, or a path below that file if it describes several; empty for a task that
	// is its whole folder. It is not in the JSON either.
	File string `json:"-"`

	// Stages is never empty. The sandbox lives across them, in order.
	Stages []Stage `json:"stages"`
	// Resources are all files and folders that any role may need.
	Resources []Resource `json:"resources,omitempty"`
	// Environment describes the sandbox of the agent.
	Environment Environment `json:"environment"`
	// Services run in the main sandbox from its creation on.
	Services []Service `json:"services,omitempty"`
	// Healthcheck must pass before the first stage begins; nil means none.
	Healthcheck *Healthcheck `json:"healthcheck,omitempty"`
	// MCPServers and Skills are offered to the agent.
	MCPServers []MCPServer `json:"mcp_servers,omitempty"`
	Skills     []Skill     `json:"skills,omitempty"`
	// Mode is the verification mode that the task declares. An experiment may
	// choose a stronger mode, never a weaker one. Empty means the default of
	// the core.
	Mode Mode `json:"mode,omitempty"`
	// Interaction allows follow-up turns of a simulated user; nil means that
	// each stage has one turn.
	Interaction *Interaction `json:"interaction,omitempty"`
	// Success defines how the scores of the stages become one outcome.
	Success Success `json:"success"`
	// Paths are the folders in the sandbox that the task's files expect.
	Paths Paths `json:"paths"`
}

// Labels sort a task among others in tables of results. They change nothing in
// how it runs.
type Labels struct {
	Tags       []string `json:"tags,omitempty"`
	Category   string   `json:"category,omitempty"`
	Difficulty string   `json:"difficulty,omitempty"`
	// Expect has the result that the author expects, one of Expectations, by a value
	// that the cell of the trial has on an axis of the matrix.
	Expect map[string]string `json:"expect,omitempty"`
}

// Expectations are what an author can expect of a trial: failed is a measured result
// that did not pass, exposed is one that passed and is exposed or violated, and passed
// one that passed and is checked.
var Expectations = []string{"failed", "exposed", "passed"}

// HostPath returns the absolute path on this host of a file or folder that the
// task names by its slash-separated path within the task's folder.
func (t *Task) HostPath(rel string) string {
	return filepath.Join(t.Dir, filepath.FromSlash(rel))
}

// Stage returns the stage with that name, or nil.
func (t *Task) Stage(name string) *Stage {
	for i := range t.Stages {
		if t.Stages[i].Name == name {
			return &t.Stages[i]
		}
	}
	return nil
}

// Paths are absolute folders in the sandbox that a task's own programs expect
// to exist. An empty path means that the task does not use such a folder.
type Paths struct {
	// AgentLogs is where an agent in the sandbox leaves its logs.
	AgentLogs string `json:"agent_logs,omitempty"`
	// VerifierLogs is where the verifier's programs write. While the agent works
	// it is empty and writable for everybody. The core replaces it with a new
	// folder before each verification.
	VerifierLogs string `json:"verifier_logs,omitempty"`
	// Artifacts is collected even when no artifact is declared.
	Artifacts string `json:"artifacts,omitempty"`
	// Folders are others, writable for everybody.
	Folders []string `json:"folders,omitempty"`
}

// All are all folders; some may be empty.
func (p Paths) All() []string {
	return append([]string{p.AgentLogs, p.VerifierLogs, p.Artifacts}, p.Folders...)
}

// Mode is how an attempt is graded. The first four are in order of strength,
// weakest first; see Stronger.
type Mode string

// The verification modes.
const (
	ModeLive      Mode = "live"      // the same sandbox, with what the agent left running
	ModeRestarted Mode = "restarted" // the same file system, every process dead
	ModeImage     Mode = "image"     // a new sandbox of the image, into which only the work is copied
	ModeSeparate  Mode = "separate"  // its own image, only the declared artifacts
	ModeCopies    Mode = "copies"    // the collected files; no sandbox
)

// Modes are all verification modes, in the order of their constants.
var Modes = []Mode{ModeLive, ModeRestarted, ModeImage, ModeSeparate, ModeCopies}

// Interaction defines what a simulated user may do in a stage.
type Interaction struct {
	// User names a resource with the persona or the settings of the simulated
	// user, by its Name; empty means that the experiment alone decides.
	User string `json:"user,omitempty"`
	// Persona says who the simulated user is, beside what User names and what the
	// experiment says.
	Persona string `json:"persona,omitempty"`
	// MaxFollowUps bounds the messages after the first turn of a stage.
	MaxFollowUps int `json:"max_follow_ups"`
	// Total bounds the time of all turns of a stage together; 0 means that
	// only the limit of each turn holds.
	Total Duration `json:"total,omitempty"`
	// Charged names what counts against Total, of ChargedParts. Empty means
	// "turn" only.
	Charged []string `json:"charged,omitempty"`
	// After lists the ends of a turn, of AfterEnds, after which the user may still
	// speak. Empty means "yielded" only. What a turn that was cut off left of the
	// agent's programs is ended before the round is judged.
	After []string `json:"after,omitempty"`
	// Hold says until when the sandbox is frozen in a round: HoldJudge (also if
	// empty) or HoldCopy.
	Hold string `json:"hold,omitempty"`
	// OnUserError says what follows when the simulated user fails: UserError (also
	// if empty) or FixedLine. The experiment may say something else.
	OnUserError string `json:"on_user_error,omitempty"`
	// Reduce combines the scores of all rounds, name by name; empty means last.
	Reduce Reducer `json:"reduce,omitempty"`
	// Decide makes one of a verifier's decisions in all rounds: last (also if
	// empty), max (the best) or min (the worst). Pass is better than continue, and
	// continue is better than fail.
	Decide Reducer `json:"decide,omitempty"`
}

// ChargedParts are the words of Interaction.Charged: the agent's turns, the copies
// of a round, its judgement, the simulated user, and the time that the agent
// waited for a model's provider.
var ChargedParts = []string{"turn", "copy", "judge", "user", "wait"}

// AfterEnds are the words of Interaction.After.
var AfterEnds = []string{"yielded", "timeout", "max_steps", "crashed"}

// The words of Interaction.OnUserError.
const (
	UserError = "user_error" // the attempt ends
	FixedLine = "fixed_line" // a verifier writes the message without it
)

// The words of Interaction.Hold.
const (
	HoldJudge = "judge" // until the copies are judged
	HoldCopy  = "copy"  // until the copies are made: for programs that do not survive a longer stop, such as a browser on a live site
)

// Charges reports whether the time of a part counts against Total.
func (in *Interaction) Charges(part string) bool {
	if in == nil || len(in.Charged) == 0 {
		return in != nil && part == "turn"
	}
	return slices.Contains(in.Charged, part)
}

// Follows reports whether the user may speak after a turn that ended so.
func (in *Interaction) Follows(end string) bool {
	if in == nil || len(in.After) == 0 {
		return in != nil && end == "yielded"
	}
	return slices.Contains(in.After, end)
}

// Success defines how the scores of the stages become one, and what counts as a
// pass. The zero value leaves the decision to the verifiers.
type Success struct {
	// Score is the name of the score that decides. If it is empty, or the
	// verifiers of a stage do not return it, their own decisions count.
	Score string `json:"score,omitempty"`
	// Reduce combines the values of each score over all stages into one; empty
	// means mean. A stage without the score counts as 0, even if it never ran.
	// For Score, a stage that was decided without it is left out.
	Reduce Reducer `json:"reduce,omitempty"`
	// AtLeast is the smallest reduced value of Score that passes; nil means
	// that there is no threshold, and the outcome is "scored".
	AtLeast *float64 `json:"at_least,omitempty"`
}

// Reducer combines several numbers, in their order, into one.
type Reducer string

// The reducers.
const (
	ReduceMean Reducer = "mean"
	ReduceLast Reducer = "last"
	ReduceMax  Reducer = "max"
	ReduceMin  Reducer = "min"
)
