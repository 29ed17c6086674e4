// Package trajectory records what an agent did, in the Agent Trajectory
// Interchange Format (ATIF): types, a reader that checks the rules, and a writer
// that makes a trajectory from steps.
//
// It must not know any agent or model provider, and reads no file except those
// that the caller names.
package trajectory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Versions of the format. One schema validates them all. Write uses the oldest
// one that supports the contents.
const (
	Version      = "ATIF-v1.7"
	VersionAudio = "ATIF-v1.8"
)

// Trajectory is one agent's record of one session.
type Trajectory struct {
	SchemaVersion string          `json:"schema_version,omitempty"` // empty means the newest
	SessionID     string          `json:"session_id,omitempty"`     // of the run as a whole
	TrajectoryID  string          `json:"trajectory_id,omitempty"`  // required and unique on embedded subagents
	Agent         Agent           `json:"agent"`
	Steps         []Step          `json:"steps"` // at least one; step ids are 1…n
	Notes         string          `json:"notes,omitempty"`
	FinalMetrics  *FinalMetrics   `json:"final_metrics,omitempty"`
	ContinuedRef  string          `json:"continued_trajectory_ref,omitempty"` // file that continues this one
	Extra         json.RawMessage `json:"extra,omitempty"`                    // a JSON object
	Subagents     []Trajectory    `json:"subagent_trajectories,omitempty"`
}

// Agent describes the agent of a trajectory.
type Agent struct {
	Name            string            `json:"name"`
	Version         string            `json:"version"`
	ModelName       string            `json:"model_name,omitempty"`
	ToolDefinitions []json.RawMessage `json:"tool_definitions,omitempty"` // JSON objects
	Extra           json.RawMessage   `json:"extra,omitempty"`
}

// Source says who made a step.
type Source string

// The sources. The zero value is not valid.
const (
	System Source = "system"
	User   Source = "user"
	Model  Source = "agent"
)

// FinalCall is the `stop_reason` in the extra of a step whose call ended the turn,
// because it says that the work is complete. Otherwise the reason is a word of the
// model's provider.
const FinalCall = "final_call"

// Step is one message and its results. The fields from ModelName to Metrics
// belong to steps of the agent only.
type Step struct {
	StepID           int64           `json:"step_id"`             // 1…n; Write sets it
	Timestamp        string          `json:"timestamp,omitempty"` // ISO 8601; see Stamp
	Source           Source          `json:"source"`
	Message          Content         `json:"message"`
	ModelName        string          `json:"model_name,omitempty"`
	ReasoningEffort  Effort          `json:"reasoning_effort,omitempty"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	ToolCalls        []ToolCall      `json:"tool_calls,omitempty"`
	Metrics          *Metrics        `json:"metrics,omitempty"`
	Observation      *Observation    `json:"observation,omitempty"`
	CopiedContext    bool            `json:"is_copied_context,omitempty"` // copied from elsewhere, not made in this step
	LLMCallCount     *int64          `json:"llm_call_count,omitempty"`    // 0: no model call
	Extra            json.RawMessage `json:"extra,omitempty"`
}

// ToolCall is one call that the agent made.
type ToolCall struct {
	ID        string          `json:"tool_call_id"`
	Name      string          `json:"function_name"`
	Arguments json.RawMessage `json:"arguments"` // a JSON object; empty is written as {}
	Extra     json.RawMessage `json:"extra,omitempty"`
}

// Observation holds the results of a step.
type Observation struct {
	Results []Result `json:"results"`
}

// Result is one result.
type Result struct {
	SourceCallID string          `json:"source_call_id,omitempty"` // id of a tool call of the same step
	Content      *Content        `json:"content,omitempty"`
	Subagents    []SubagentRef   `json:"subagent_trajectory_ref,omitempty"`
	Extra        json.RawMessage `json:"extra,omitempty"`
}

// SubagentRef refers to the trajectory of a subagent: embedded, by id, or in a
// file, by path. One of the two is set.
type SubagentRef struct {
	TrajectoryID   string          `json:"trajectory_id,omitempty"`
	TrajectoryPath string          `json:"trajectory_path,omitempty"`
	SessionID      string          `json:"session_id,omitempty"`
	Extra          json.RawMessage `json:"extra,omitempty"`
}

// Metrics are the model's usage for one step. Nil means not known.
type Metrics struct {
	PromptTokens       *int64          `json:"prompt_tokens,omitempty"` // includes cached ones
	CompletionTokens   *int64          `json:"completion_tokens,omitempty"`
	CachedTokens       *int64          `json:"cached_tokens,omitempty"`
	CostUSD            *float64        `json:"cost_usd,omitempty"`
	PromptTokenIDs     []int64         `json:"prompt_token_ids,omitempty"`
	CompletionTokenIDs []int64         `json:"completion_token_ids,omitempty"`
	Logprobs           []float64       `json:"logprobs,omitempty"`
	Extra              json.RawMessage `json:"extra,omitempty"`
}

// FinalMetrics are the totals of a trajectory. Nil means not known.
type FinalMetrics struct {
	PromptTokens     *int64          `json:"total_prompt_tokens,omitempty"`
	CompletionTokens *int64          `json:"total_completion_tokens,omitempty"`
	CachedTokens     *int64          `json:"total_cached_tokens,omitempty"`
	CostUSD          *float64        `json:"total_cost_usd,omitempty"`
	Steps            *int64          `json:"total_steps,omitempty"`
	Extra            json.RawMessage `json:"extra,omitempty"`
}

// Content is a text, or parts if there is more than text. If Parts is not nil,
// Text is ignored.
type Content struct {
	Text  string
	Parts []Part
}

// Text makes a Content from a text.
func Text(s string) Content { return Content{Text: s} }

// String returns the text, with a mark for each part of another kind.
func (c Content) String() string {
	if c.Parts == nil {
		return c.Text
	}
	texts := make([]string, len(c.Parts))
	for i, p := range c.Parts {
		if texts[i] = p.Text; p.Type != PartText {
			texts[i] = fmt.Sprintf("[%s left out]", p.Type)
		}
	}
	return strings.Join(texts, "\n")
}

// Part is a piece of multimodal content.
type Part struct {
	Type   PartType    `json:"type"`
	Text   string      `json:"text,omitempty"`   // of PartText
	Source *PartSource `json:"source,omitempty"` // of PartImage and PartAudio
}

// PartType is the kind of a Part.
type PartType string

// The kinds of parts. The zero value is not valid.
const (
	PartText  PartType = "text"
	PartImage PartType = "image"
	PartAudio PartType = "audio"
)

// PartSource is the file of an image or of audio.
type PartSource struct {
	MediaType   string   `json:"media_type"`
	Path        string   `json:"path"`                   // relative to the trajectory's file, or a URL
	DurationSec *float64 `json:"duration_sec,omitempty"` // of audio
}

// Effort is a reasoning effort: a word, or a number in decimal.
type Effort string

// UnmarshalJSON accepts a string or a number.
func (e *Effort) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*e = Effort(s)
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("reasoning effort is neither a text nor a number: %w", err)
	}
	*e = Effort(n.String())
	return nil
}

// MarshalJSON writes the parts, or else the text.
func (c Content) MarshalJSON() ([]byte, error) {
	if c.Parts != nil {
		return json.Marshal(c.Parts)
	}
	return json.Marshal(c.Text)
}

// UnmarshalJSON accepts a string or a list of parts.
func (c *Content) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte("[")) {
		c.Text, c.Parts = "", []Part{}
		return json.Unmarshal(b, &c.Parts)
	}
	c.Parts = nil
	return json.Unmarshal(b, &c.Text)
}

// MarshalJSON writes a text part with its text even if that is empty.
func (p Part) MarshalJSON() ([]byte, error) {
	if p.Type == PartText {
		return json.Marshal(struct {
			Type PartType `json:"type"`
			Text string   `json:"text"`
		}{p.Type, p.Text})
	}
	type plain Part
	return json.Marshal(plain(p))
}

// MarshalJSON writes no results as an empty list.
func (o Observation) MarshalJSON() ([]byte, error) {
	type plain Observation
	if o.Results == nil {
		o.Results = []Result{}
	}
	return json.Marshal(plain(o))
}

// MarshalJSON writes empty arguments as an empty object.
func (c ToolCall) MarshalJSON() ([]byte, error) {
	type plain ToolCall
	if len(c.Arguments) == 0 {
		c.Arguments = json.RawMessage("{}")
	}
	return json.Marshal(plain(c))
}

// Stamp returns t as a timestamp of a step: UTC, to the millisecond.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
