package record

import (
	"encoding/json"
	"time"

	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Names of the files of an attempt.
const (
	ResultFile     = "result.json"
	EventsFile     = "events.jsonl"
	TurnsFile      = "turns.jsonl"
	StepsFile      = "steps.jsonl"
	FilesFile      = "files.tar.zst" // what differed from the image when the agent had finished
	SurfaceFile    = "surface.jsonl"
	VerdictsFile   = "verdicts.jsonl"
	TrajectoryFile = "trajectory.json"
	LogFile        = "log"
	AgentDir       = "agent"
	VerifierDir    = "verifier"
	ArtifactsDir   = "artifacts"
	RoundsDir      = "rounds" // copies of the artifacts, as the verifiers of each round saw them
	SidecarsDir    = "sidecars"
	CapturesDir    = "captures"
	FramesDir      = "frames"
	ModelDir       = "model"
	ExchangesFile  = ModelDir + "/exchanges.jsonl"
)

// EventType is the type of an Event.
type EventType string

// The types of events.
const (
	EventPhaseStart EventType = "phase_start"
	EventPhaseEnd   EventType = "phase_end" // Error is set when it failed
	EventFinding    EventType = "finding"
	EventStep       EventType = "step" // live only: a step was recorded
)

// Event is one line of events.jsonl, and one event of live progress.
type Event struct {
	Time    time.Time `json:"time"`
	Type    EventType `json:"type"`
	Phase   PhaseName `json:"phase,omitempty"`
	Stage   string    `json:"stage,omitempty"`
	Round   int       `json:"round,omitempty"`
	Turn    int       `json:"turn,omitempty"`
	Who     Boundary  `json:"who,omitempty"`
	Finding *Finding  `json:"finding,omitempty"`
	Error   string    `json:"error,omitempty"`
	Text    string    `json:"text,omitempty"`
}

// TurnKind says what a line of turns.jsonl is about.
type TurnKind string

// The kinds of lines of turns.jsonl.
const (
	TurnMessage TurnKind = "message" // a message to the agent
	TurnYield   TurnKind = "yield"   // the agent's turn is over
	TurnOver    TurnKind = "over"    // of a task with an interaction: no message follows
)

// Over is why no further message of the user follows.
type Over string

// The reasons.
const (
	OverDecided   Over = "decided"    // no verifier wants to continue
	OverFollowUps Over = "follow_ups" // the user has no message left
	OverTotal     Over = "total"      // the total time of the interaction is used up
	OverAgent     Over = "agent"      // the agent's turn ended in a way that no message follows
	OverSilent    Over = "silent"     // the user said nothing, or a verifier kept it back
	OverUser      Over = "user"       // the user ended the conversation, and the reason says why
)

// Turn is one line of turns.jsonl.
type Turn struct {
	Time     time.Time     `json:"time"`
	Kind     TurnKind      `json:"kind"`
	Stage    string        `json:"stage"`
	Turn     int           `json:"turn"`            // 1… within the stage
	Round    int           `json:"round,omitempty"` // of verification that led to the message; 0: the first message
	From     string        `json:"from,omitempty"`  // of a message: task or user
	Text     string        `json:"text,omitempty"`  // of a message
	Files    []string      `json:"files,omitempty"`
	Agent    string        `json:"agent,omitempty"`   // of a yield: the plugin
	End      AgentEnd      `json:"end,omitempty"`     // of a yield, as the core recorded it
	Stop     string        `json:"stop,omitempty"`    // why the model stopped in the last answer of the turn, in the provider's word; empty: not known
	Asked    bool          `json:"asked,omitempty"`   // the agent waits for an answer
	Message  string        `json:"message,omitempty"` // the last message of the agent
	ExitCode int           `json:"exit_code,omitempty"`
	Reason   string        `json:"reason,omitempty"` // of a yield or an end
	Over     Over          `json:"over,omitempty"`
	Took     time.Duration `json:"took_ns,omitempty"` // charged to the agent
}

// Step is one line of steps.jsonl.
type Step struct {
	Time  time.Time       `json:"time"`
	Stage string          `json:"stage"`
	Turn  int             `json:"turn"`
	Role  string          `json:"role"` // agent, oracle or user
	Step  trajectory.Step `json:"step"`
	Cut   bool            `json:"cut,omitempty"` // it was too long, and some of its texts were shortened
}

// Verdict is one line of verdicts.jsonl.
type Verdict struct {
	Time time.Time `json:"time"`
	verifier.Verdict
	Settings json.RawMessage `json:"settings,omitempty"`
}
