// Package harborjob writes the results of a run as a job folder of Harbor, and
// reads such a folder as a run.
//
// It knows the files of Harbor 0.26: JobConfig and JobResult of a job, TrialConfig
// and TrialResult of a trial. docs/exchange.md has the mapping of outcomes. Both
// folders may have been made by others.
package harborjob

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Names of files in the folder of a job or a trial.
const (
	configFile = "config.json"
	resultFile = "result.json"
	lockFile   = "lock.json"

	agentDir, verifierDir, artifactsDir = "agent", "verifier", "artifacts"
)

// jobConfig is config.json of a job.
type jobConfig struct {
	JobName  string        `json:"job_name"`
	JobsDir  string        `json:"jobs_dir"`
	Attempts int           `json:"n_attempts"`
	Agents   []agentConfig `json:"agents"`
	// Datasets name where tasks come from.
	Datasets []datasetConfig `json:"datasets"`
}

type datasetConfig struct {
	Path string `json:"path"`
}

type taskConfig struct {
	Path   string `json:"path"`
	Source string `json:"source,omitempty"`
}

type agentConfig struct {
	Name  string `json:"name,omitempty"`
	Model string `json:"model_name,omitempty"`
}

type environmentConfig struct {
	Type       string `json:"type,omitempty"`
	ImportPath string `json:"import_path,omitempty"`
}

// trialConfig is config.json of a trial.
type trialConfig struct {
	Task        taskConfig        `json:"task"`
	TrialName   string            `json:"trial_name"`
	TrialsDir   string            `json:"trials_dir"`
	Agent       agentConfig       `json:"agent"`
	Environment environmentConfig `json:"environment"`
	JobID       string            `json:"job_id,omitempty"`
}

// trialLock is lock.json of a trial. Its digest says which content the task had.
type trialLock struct {
	Version     int               `json:"schema_version"`
	Task        taskLock          `json:"task"`
	Agent       agentConfig       `json:"agent"`
	Environment environmentConfig `json:"environment"`
	Verifier    struct{}          `json:"verifier"`
}

type taskLock struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Digest string `json:"digest"`
	Source string `json:"source,omitempty"`
	Path   string `json:"path,omitempty"`
}

type modelInfo struct {
	Name     string `json:"name"`
	Provider string `json:"provider,omitempty"`
}

type agentInfo struct {
	Name    string     `json:"name"`
	Version string     `json:"version"`
	Model   *modelInfo `json:"model_info"`
}

type modelUsage struct {
	Input  int64    `json:"n_input_tokens"`
	Cached int64    `json:"n_cache_tokens"`
	Output int64    `json:"n_output_tokens"`
	Cost   *float64 `json:"cost_usd"`
}

type agentResult struct {
	Input    *int64                `json:"n_input_tokens"`
	Cached   *int64                `json:"n_cache_tokens"`
	Output   *int64                `json:"n_output_tokens"`
	Cost     *float64              `json:"cost_usd"`
	Models   map[string]modelUsage `json:"model_usage"`
	Metadata map[string]any        `json:"metadata"`
}

type verifierResult struct {
	Rewards map[string]*float64 `json:"rewards"`
}

type exception struct {
	Type      string    `json:"exception_type"`
	Message   string    `json:"exception_message"`
	Traceback string    `json:"exception_traceback"`
	Occurred  timestamp `json:"occurred_at"`
}

type timing struct {
	Started  *timestamp `json:"started_at"`
	Finished *timestamp `json:"finished_at"`
}

type stepResult struct {
	Name      string          `json:"step_name"`
	Agent     *agentResult    `json:"agent_result"`
	Verifier  *verifierResult `json:"verifier_result"`
	Exception *exception      `json:"exception_info"`
	Execution *timing         `json:"agent_execution"`
	Verified  *timing         `json:"verifier"`
}

// trialResult is result.json of a trial.
type trialResult struct {
	ID          string            `json:"id"`
	Task        string            `json:"task_name"`
	Trial       string            `json:"trial_name"`
	URI         string            `json:"trial_uri"`
	TaskID      map[string]string `json:"task_id"`
	Source      *string           `json:"source"`
	Checksum    string            `json:"task_checksum"`
	Config      trialConfig       `json:"config"`
	AgentInfo   agentInfo         `json:"agent_info"`
	Agent       *agentResult      `json:"agent_result"`
	Verifier    *verifierResult   `json:"verifier_result"`
	Mode        *string           `json:"verifier_environment_mode"`
	Exception   *exception        `json:"exception_info"`
	Started     *timestamp        `json:"started_at"`
	Finished    *timestamp        `json:"finished_at"`
	Environment *timing           `json:"environment_setup"`
	Setup       *timing           `json:"agent_setup"`
	Execution   *timing           `json:"agent_execution"`
	Verified    *timing           `json:"verifier"`
	Steps       []stepResult      `json:"step_results"`
	// RewardValid says whether Harbor counts the reward.
	RewardValid *bool `json:"reward_valid,omitempty"`
}

// evalStats are the numbers of one agent, model and dataset.
type evalStats struct {
	Trials     int                            `json:"n_trials"` // with valid rewards
	Errors     int                            `json:"n_errors"`
	Metrics    []map[string]float64           `json:"metrics"`
	Rewards    map[string]map[string][]string `json:"reward_stats"`
	Exceptions map[string][]string            `json:"exception_stats"`

	all []map[string]float64 // valid rewards
}

type jobStats struct {
	Completed int                   `json:"n_completed_trials"`
	Errored   int                   `json:"n_errored_trials"`
	Running   int                   `json:"n_running_trials"`
	Pending   int                   `json:"n_pending_trials"`
	Cancelled int                   `json:"n_cancelled_trials"`
	Retries   int                   `json:"n_retries"`
	Evals     map[string]*evalStats `json:"evals"`
	Input     int64                 `json:"n_input_tokens"`
	Cached    int64                 `json:"n_cache_tokens"`
	Output    int64                 `json:"n_output_tokens"`
	Cost      *float64              `json:"cost_usd"`
}

// jobResult is result.json of a job.
type jobResult struct {
	ID       string     `json:"id"`
	Started  timestamp  `json:"started_at"`
	Updated  *timestamp `json:"updated_at"`
	Finished *timestamp `json:"finished_at"`
	Total    int        `json:"n_total_trials"`
	Stats    jobStats   `json:"stats"`
}

// timestamp is a time that may have been written without a zone, which then is
// taken as UTC.
type timestamp struct{ time.Time }

// UnmarshalJSON reads the two forms that Harbor writes.
func (t *timestamp) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		at, err = time.Parse("2006-01-02T15:04:05.999999999", s)
	}
	t.Time = at.UTC()
	return err
}

// MarshalJSON writes microseconds, as Python does.
func (t timestamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(t.UTC().Format("2006-01-02T15:04:05.000000Z"))
}

func stamp(t time.Time) *timestamp {
	if t.IsZero() {
		return nil
	}
	return &timestamp{t}
}

// uuid returns an id that is always the same for the same text.
func uuid(of string) string {
	sum := sha256.Sum256([]byte(of))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // version 8: made in a way of one's own
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
