// Package output holds what each command prints with --json: one type a
// command, whose JSON Schema is in schemas/. A field is added, never renamed.
//
// It must hold no behavior.
package output

import (
	"encoding/json"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/cmd/berth/internal/conform"
	"github.com/berth-eval/berth/cmd/berth/internal/notes"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
)

// Failure is what every command says on the last line of stderr when it ends
// for a reason that its answer does not hold.
type Failure struct {
	Error       string             `json:"error"`
	Code        int                `json:"code"`                  // the exit code
	Details     []string           `json:"details,omitempty"`     // such as the differences that keep a run from being resumed
	Diagnostics config.Diagnostics `json:"diagnostics,omitempty"` // of the experiment
	Problems    []plan.Problem     `json:"problems,omitempty"`
	Missing     []plan.Missing     `json:"missing,omitempty"`
}

// Init is what `berth init` says.
type Init struct {
	Files []string `json:"files"` // that were made
}

// Validate is what `berth validate` says.
type Validate struct {
	Valid       bool               `json:"valid"`
	Diagnostics config.Diagnostics `json:"diagnostics"`
	Problems    []plan.Problem     `json:"problems"`
	Missing     []plan.Missing     `json:"missing"`
}

// Plan is what `berth plan` says.
type Plan struct {
	Experiment  string             `json:"experiment"`
	Repeat      int                `json:"repeat"`
	Trials      int                `json:"trials"`
	Invalid     int                `json:"invalid_trials"` // of Trials: their tasks cannot be run
	Refused     int                `json:"refused_trials"` // of Trials: their cells refuse them
	Cells       []PlanCell         `json:"cells"`
	Tasks       []PlanTask         `json:"tasks"`
	Cost        Cost               `json:"cost"`
	Diagnostics config.Diagnostics `json:"diagnostics"`
	Problems    []plan.Problem     `json:"problems"`
	Missing     []plan.Missing     `json:"missing"`
	// Declared says what the tasks declare, and how the cells that can run them deliver
	// it: delivered, told in the first message, reduced by the experiment, or unused by
	// the agent. Empty: a plugin could not be asked.
	Declared []plan.Declared `json:"declared"`
	// Ready says that `berth run` would start.
	Ready bool `json:"ready"`
	// Pilots says what a cluster is asked for; absent: it is asked for nothing.
	Pilots *PlanPilots   `json:"pilots,omitempty"`
	List   []store.Trial `json:"list,omitempty"` // with --trials
}

// Cost is what a run can cost at most, in USD, of models.
type Cost struct {
	// WorstUSD is nil when it is not known; Unknown then says why. Unknown is
	// not zero.
	WorstUSD *float64 `json:"worst_usd"`
	Unknown  []string `json:"unknown,omitempty"`
	// LimitUSD is the limit of the run; nil means that it has none.
	LimitUSD *float64 `json:"limit_usd,omitempty"`
	// Attempts is how many there can be at most, retries included.
	Attempts int `json:"attempts"`
}

// PlanCell is one cell of a plan.
type PlanCell struct {
	Key         string            `json:"key"`
	Slug        string            `json:"slug"`
	Choices     map[string]string `json:"choices"`
	Agent       string            `json:"agent"`
	Model       string            `json:"model,omitempty"`
	Environment string            `json:"environment"`
	Trials      int               `json:"trials"`
}

// PlanTask is one task of a plan.
type PlanTask struct {
	Dataset  string         `json:"dataset"`
	Name     string         `json:"name"`
	Path     string         `json:"path"`
	Digest   string         `json:"digest,omitempty"`
	Valid    bool           `json:"valid"`
	Problems []task.Problem `json:"problems,omitempty"`
	// Verifiers are the verifiers of the task with their plugins, and Success
	// its rules, as texts. There are several if cells or stages differ.
	Verifiers []string `json:"verifiers,omitempty"`
	Success   []string `json:"success,omitempty"`
}

// Run is what `berth run`, `berth try` and `berth resume` say at the end.
type Run struct {
	Dir     string           `json:"dir"` // of the run
	Ran     int              `json:"ran"` // attempts published now
	Stopped string           `json:"stopped,omitempty"`
	Summary *summary.Summary `json:"summary"`
	Failed  []string         `json:"failed_requirements,omitempty"`
}

// Runs is what `berth show` says without a run.
type Runs struct {
	Runs []RunLine `json:"runs"`
}

// RunLine is one run of a list.
type RunLine struct {
	Dir        string                 `json:"dir"`
	Experiment string                 `json:"experiment"`
	Created    time.Time              `json:"created"`
	Planned    int                    `json:"planned"`
	Outcomes   map[record.Outcome]int `json:"outcomes"`
	Complete   bool                   `json:"complete"`
	Busy       string                 `json:"busy,omitempty"` // who writes it now
	Error      string                 `json:"error,omitempty"`
}

// ShowRun is what `berth show RUN` says. Planned of its summary is the number
// of Trials, and the sum over outcomes.
type ShowRun struct {
	Dir     string           `json:"dir"`
	Run     store.Header     `json:"run"`
	Summary *summary.Summary `json:"summary"`
	Trials  []ShowTrial      `json:"trials"`
	Writers []ShowWriter     `json:"writers"`
	Pilots  []ShowPilot      `json:"pilots,omitempty"`    // of a run with an executor block
	Waits   string           `json:"jobs_wait,omitempty"` // for what jobs of pilots wait, as a sentence
	Notes   []string         `json:"notes,omitempty"`
	Torn    int              `json:"torn_lines"`
	Damaged int              `json:"damaged_lines"`
}

// ShowWriter is a process that wrote the run.
type ShowWriter struct {
	Name  string    `json:"name"`
	Host  string    `json:"host,omitempty"`
	PID   int       `json:"pid,omitempty"`
	Berth string    `json:"berth,omitempty"`
	Began time.Time `json:"began"`
	Ended bool      `json:"ended"`
}

// ShowPilot is a process that makes, or made, attempts of the run. Times are by the
// clock of its machine.
type ShowPilot struct {
	record.Worker

	State    PilotState `json:"state"`
	Why      string     `json:"why,omitempty"` // it ended
	Began    time.Time  `json:"began"`
	Heard    time.Time  `json:"heard"`     // the last sign of life
	InFlight int        `json:"in_flight"` // attempts at a time, at most
	Running  int        `json:"running"`   // attempts that it has
	Done     int        `json:"done"`      // attempts that it made and stored
}

// PilotState says whether a pilot works.
type PilotState string

// The states.
const (
	PilotWorks PilotState = "works"
	PilotEnded PilotState = "ended"
	// PilotLost has said nothing for so long that its attempts were given up.
	PilotLost PilotState = "lost"
	// PilotSilent has not said that it ended, and no process runs the run any more
	// that would look after it.
	PilotSilent PilotState = "silent"
)

// ShowTrial is what `berth show RUN TRIAL` says.
type ShowTrial struct {
	store.Trial

	CellKey  string         `json:"cell_key"`
	Outcome  record.Outcome `json:"outcome"`
	Accepted int            `json:"accepted,omitempty"` // number of the attempt; 0: none
	Running  *ShowRunning   `json:"running,omitempty"`  // absent: no attempt is in progress
	Attempts []ShowAttempt  `json:"attempts"`
}

// ShowRunning is the attempt of a trial that is in progress.
type ShowRunning struct {
	Attempt int           `json:"attempt"`
	Start   time.Time     `json:"start"`
	Age     float64       `json:"age_s"`           // seconds since Start
	Phase   *record.Phase `json:"phase,omitempty"` // the newest one; absent before the first
	// PhaseAge is the number of seconds since the start of Phase.
	PhaseAge float64 `json:"phase_age_s,omitempty"`
	// Worker makes the attempt, in a run with pilots. Queued says that none does
	// yet.
	Worker *record.Worker `json:"worker,omitempty"`
	Queued bool           `json:"queued,omitempty"`
}

// ShowFollow is one line of `berth show RUN TRIAL --watch`. Exactly one of the
// fields after Attempt is set.
type ShowFollow struct {
	Attempt int             `json:"attempt,omitempty"` // of the trial; absent with Trial
	Event   *record.Event   `json:"event,omitempty"`
	Step    *record.Step    `json:"step,omitempty"`
	Log     json.RawMessage `json:"log,omitempty"`
	Result  *record.Result  `json:"result,omitempty"` // the attempt has ended
	Trial   *ShowTrial      `json:"trial,omitempty"`  // the last line: the trial has ended, or its run
}

// ShowAttempt is one attempt in short.
type ShowAttempt struct {
	Attempt   int              `json:"attempt"`
	Dir       string           `json:"dir"`
	State     AttemptState     `json:"state"`
	Outcome   record.Outcome   `json:"outcome,omitempty"` // of a published attempt
	AgentEnd  record.AgentEnd  `json:"agent_end,omitempty"`
	Integrity record.Integrity `json:"integrity,omitempty"`
	Score     *float64         `json:"score,omitempty"`
	Start     time.Time        `json:"start,omitzero"` // absent: not known
	End       time.Time        `json:"end,omitzero"`
	Phases    []record.Phase   `json:"phases"`
	Findings  int              `json:"findings"`
	Error     *record.Error    `json:"error,omitempty"`
	Spend     store.Spend      `json:"spend"` // of models, also when it was killed
	// Queued is how many seconds the attempt waited for a pilot, before Start.
	Queued float64 `json:"queued_s,omitempty"`
}

// AttemptState says how far an attempt came.
type AttemptState string

// The states.
const (
	Published AttemptState = "published"
	Abandoned AttemptState = "abandoned" // its process was killed: it counts for nothing
	UnderWay  AttemptState = "under_way"
)

// ShowFull is what `berth show RUN TRIAL ATTEMPT` says.
type ShowFull struct {
	Dir    string         `json:"dir"`
	State  AttemptState   `json:"state"`
	Result *record.Result `json:"result"`           // null: not published, or Damaged
	Damage string         `json:"damage,omitempty"` // why the result of a published attempt cannot be read
	Phases []record.Phase `json:"phases"`
	Turns  []record.Turn  `json:"turns,omitempty"`
	// Verdicts are all that were given, of each round; Result has those that count.
	Verdicts []record.Verdict  `json:"verdicts,omitempty"`
	Steps    []record.Step     `json:"steps,omitempty"`
	Log      []json.RawMessage `json:"log,omitempty"`
	// Plugins are the lines of plugins that are known to belong to the attempt.
	Plugins []plugin.Line `json:"plugins,omitempty"`
	// Interventions are what people did during the run that the attempt can have
	// felt.
	Interventions []string `json:"interventions,omitempty"`

	// Notes are what readers wrote about the attempt. They are not part of its record.
	Notes []notes.Note `json:"notes,omitempty"`

	Files []string `json:"files"`         // below Dir
	Cut   []string `json:"cut,omitempty"` // what of it could not be shown, or not whole, and why
}

// AgentBundle is one bundle, as `berth agent bundle`, export and import say.
type AgentBundle struct {
	bundle.Bundle

	File    string `json:"file,omitempty"`    // the archive that was written
	Problem string `json:"problem,omitempty"` // why list says that it cannot be used; with --verify, also that it has been changed
}

// AgentList is what `berth agent list` says.
type AgentList struct {
	Folder  string        `json:"folder"`
	Bundles []AgentBundle `json:"bundles"`
	Missing []string      `json:"missing"` // that plugins use when nothing else is said
}

// PluginList is what `berth plugin list` says.
type PluginList struct {
	Folders []string      `json:"folders"` // that were searched
	Plugins []PluginEntry `json:"plugins"`
	// NotStarted are executable files in the folders that do not have the name of
	// a plugin.
	NotStarted []string `json:"not_started,omitempty"`
}

// PluginLock is what `berth plugin lock` says.
type PluginLock struct {
	File    string       `json:"file"` // that was written
	Plugins []PluginPart `json:"plugins"`
}

// PluginPart is a plugin that an experiment uses.
type PluginPart struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
}

// PluginInstall is what `berth plugin install` says.
type PluginInstall struct {
	Path    string        `json:"path"` // where the plugin is now
	Plugins []PluginEntry `json:"plugins"`
}

// PluginEntry is one plugin.
type PluginEntry struct {
	Kind         string          `json:"kind"`
	Name         string          `json:"name"`
	Version      string          `json:"version"`
	Protocol     int             `json:"protocol"`
	Path         string          `json:"path"`
	Digest       string          `json:"digest"`
	Capabilities []string        `json:"capabilities,omitempty"`
	Doc          string          `json:"doc,omitempty"`
	Schema       json.RawMessage `json:"config_schema,omitempty"` // JSON Schema, with `berth plugin info`
	ShadowedBy   string          `json:"shadowed_by,omitempty"`
	Error        string          `json:"error,omitempty"`
}

// PluginNew is what `berth plugin new` says.
type PluginNew struct {
	Files   []string `json:"files"`   // that were written
	Program string   `json:"program"` // what `berth plugin test` takes, once it is built
	Next    []string `json:"next"`    // commands that build and test it
}

// PluginTest is what `berth plugin test` says.
type PluginTest struct {
	Path    string           `json:"path"`
	Passed  int              `json:"passed"`
	Failed  int              `json:"failed"`
	Skipped int              `json:"skipped"`
	Clauses []conform.Result `json:"clauses"`
}

// Doctor is what `berth doctor` says.
type Doctor struct {
	Ready        bool                `json:"ready"` // some environment can run a plain task
	Checks       []DoctorCheck       `json:"checks"`
	Environments []DoctorEnvironment `json:"environments"`
}

// DoctorCheck is one thing looked at.
type DoctorCheck struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"` // nothing that every environment needs is missing
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"` // what to do; where OK is true, for some environments or tasks
}

// DoctorEnvironment is what an environment plugin says of a plain task.
type DoctorEnvironment struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	OK      bool   `json:"ok"`
	// SurfaceOnly says that the plugin makes no sandboxes: its surfaces are opened on
	// those of other plugins.
	SurfaceOnly bool                  `json:"surface_only,omitempty"`
	About       string                `json:"about,omitempty"` // what it is on this machine
	Refusals    []environment.Problem `json:"refusals,omitempty"`
	Degraded    []environment.Problem `json:"degraded,omitempty"`
	Error       string                `json:"error,omitempty"`
}

// GC is what `berth gc` says.
type GC struct {
	DryRun    bool     `json:"dry_run"`
	Sandboxes []string `json:"sandboxes"` // environment and id
	Folders   []string `json:"folders"`

	Images     []GCImage `json:"images,omitempty"`      // those that the rule for images does not keep
	ImagesKept int       `json:"images_kept,omitempty"` // those that it keeps, and those in use; 0 without a rule
	Problems   []string  `json:"problems,omitempty"`
}

// GCImage is an image that was built or loaded for runs and is removed.
type GCImage struct {
	Environment string    `json:"environment"` // plugin
	Ref         string    `json:"ref"`
	SizeMiB     int64     `json:"size_mib,omitempty"` // layers that images share count in each
	Used        time.Time `json:"used,omitzero"`      // when it was last prepared, used or made
}

// Prepare is what `berth run --prepare-only` says.
type Prepare struct {
	Images []Prepared `json:"images"`
}

// Prepared is an image that trials start from.
type Prepared struct {
	Environment string   `json:"environment"` // plugin
	Ref         string   `json:"ref,omitempty"`
	Build       string   `json:"build,omitempty"`  // folder that it is built from
	Digest      string   `json:"digest,omitempty"` // empty: the environment prepares none
	Tasks       []string `json:"tasks"`
	Error       string   `json:"error,omitempty"` // why it cannot be had
}

// Gateway is what `berth gateway` serves.
type Gateway struct {
	Models []GatewayModel `json:"models"`
}

// GatewayModel is one model and how it is reached until the command ends.
type GatewayModel struct {
	Label    string `json:"label"`
	Name     string `json:"name"`     // to be asked for
	Provider string `json:"provider"` // whose wire format it speaks; "script" speaks all
	URL      string `json:"url"`
	Token    string `json:"token"` // in place of the provider's key
}
