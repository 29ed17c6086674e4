package export

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/record"
)

// Kind is the type of a column's values.
type Kind int

// The kinds.
const (
	Text Kind = iota
	Integer
	Number
	Truth
	Time // UTC
)

// Column is a column of the table. A value is nil where there is nothing to state,
// such as a result that an attempt does not have.
type Column struct {
	Name string
	Kind Kind
	Doc  string

	// get returns a string, int64, float64, bool or time.Time, as Kind says, or nil.
	get func(*row) any
}

// Columns are the columns that every table begins with, in this order. After them
// come a column for each axis of the matrix and for each score.
func Columns() []Column {
	return slices.Concat(columnsOfTrial(), columnsOfResult(), columnsOfUse(), columnsOfOrigin())
}

func columnsOfTrial() []Column {
	return []Column{
		{"run", Text, "id of the run", func(r *row) any { return text(r.run.Manifest.Header.Run) }},
		{"experiment", Text, "name of the experiment", func(r *row) any { return text(r.run.Manifest.Header.Experiment) }},
		{"trial", Text, "id of the trial", func(r *row) any { return text(r.trial.ID) }},
		{"task", Text, "name of the task", func(r *row) any { return text(r.trial.Task) }},
		{"task_digest", Text, "digest of the task's files", func(r *row) any { return text(r.trial.TaskDigest) }},
		{"dataset", Text, "label of the dataset", func(r *row) any { return text(r.trial.Dataset) }},
		{"cell", Text, "key of the cell: its values on the axes", func(r *row) any { return text(r.cell.Key) }},
		{"agent", Text, "label of the agent", func(r *row) any { return text(r.cell.Agent) }},
		{"model", Text, "label of the model", func(r *row) any { return text(r.cell.Model) }},
		{"environment", Text, "label of the environment", func(r *row) any { return text(r.cell.Environment) }},
		{"repetition", Integer, "number of the repetition, from 1", func(r *row) any { return int64(r.trial.Repetition) }},
		{"attempt", Integer, "number of the attempt, from 1", func(r *row) any {
			if r.attempt == nil {
				return nil
			}
			return int64(r.attempt.Number)
		}},
		{"counts", Truth, "this row is the result of its trial: true in exactly one row of each", func(r *row) any { return r.counts }},
		{"state", Text, "published, under_way, abandoned (it was killed), or none (no attempt)", func(r *row) any { return r.state() }},
	}
}

// of returns a getter that is absent for attempts whose result cannot be read.
func of(get func(*record.Result) any) func(*row) any {
	return func(r *row) any {
		if r.result == nil {
			return nil
		}
		return get(r.result)
	}
}

// failed returns a getter for the error that decided the attempt.
func failed(get func(*record.Error) string) func(*row) any {
	return of(func(r *record.Result) any {
		if r.Error == nil {
			return nil
		}
		return text(get(r.Error))
	})
}

func columnsOfResult() []Column {
	return []Column{
		{"outcome", Text, "outcome of the attempt; where counts is true, of the trial", func(r *row) any { return text(string(r.outcome())) }},
		{"measured", Truth, "the attempt says something about the agent", func(r *row) any {
			if r.attempt == nil || r.attempt.Result == nil {
				return nil
			}
			return r.trial.Invalid == "" && r.attempt.Result.Measured()
		}},
		{"agent_end", Text, "how the agent's last turn ended", of(func(r *record.Result) any { return text(string(r.AgentEnd)) })},
		{"integrity", Text, "checked, exposed, violated or unknown", of(func(r *record.Result) any { return text(string(r.Integrity)) })},
		{"integrity_reasons", Text, "reasons for the integrity, separated by \"; \"", of(func(r *record.Result) any { return text(strings.Join(r.Reasons, "; ")) })},
		{"score", Number, "the score that success and tables use", of(func(r *record.Result) any {
			if r.Score == nil {
				return nil
			}
			return *r.Score
		})},
		{"mode", Text, "verification mode", of(func(r *record.Result) any { return text(r.Mode) })},
		{"oracle", Truth, "the agent was given the reference solution", of(func(r *record.Result) any { return r.Oracle })},
		{"modified", Truth, "the experiment changed settings of the task", of(func(r *record.Result) any { return len(r.Modified) > 0 })},
		{"interventions", Text, "what people did that can have affected it, separated by \"; \"", func(r *row) any {
			if r.attempt == nil {
				return nil
			}
			return text(strings.Join(summary.InterventionsOn(r.run.Manifest, r.run.Index, r.trial, r.attempt), "; "))
		}},
		{"error_boundary", Text, "who caused the error that decided the attempt", failed(func(e *record.Error) string { return string(e.Boundary) })},
		{"error_phase", Text, "phase in which it happened", failed(func(e *record.Error) string { return string(e.Phase) })},
		{"error", Text, "its message, at most 4 KiB", failed(func(e *record.Error) string { return e.Message })},
		{"findings", Integer, "number of findings", of(func(r *record.Result) any { return int64(len(r.Findings)) })},
		{"checkpoints_passed", Integer, "number of single tests, or lines of a rubric, that passed", checkpoints("passed")},
		{"checkpoints_failed", Integer, "number of those that failed", checkpoints("failed")},
		{"checkpoints_skipped", Integer, "number of those that were skipped", checkpoints("skipped")},
		{"checkpoints", Text, "each of them, as a JSON list of objects with name, result and note", of(listed)},
		{"notes", Text, "labels that readers gave the attempt, separated by \"; \"", func(r *row) any {
			if r.attempt == nil {
				return nil
			}
			return text(strings.Join(r.run.Readers.Labels(r.trial.ID, r.attempt.Number), "; "))
		}},
		{"finding_codes", Text, "their codes, each once, separated by spaces", func(r *row) any { return text(r.findings()) }},
	}
}

// checkpoints returns a getter for the number of checkpoints with a result.
func checkpoints(result string) func(*row) any {
	return of(func(r *record.Result) any {
		known, n := false, int64(0)
		for i := range r.Verdicts {
			for _, c := range r.Verdicts[i].Checkpoints {
				known = true
				if c.Result() == result {
					n++
				}
			}
		}
		if !known {
			return nil
		}
		return n
	})
}

// listed returns the checkpoints as JSON.
func listed(r *record.Result) any {
	type one struct {
		Name   string `json:"name"`
		Result string `json:"result"`
		Note   string `json:"note,omitempty"`
	}
	var all []one
	for i := range r.Verdicts {
		for _, c := range r.Verdicts[i].Checkpoints {
			all = append(all, one{named(c.Name), c.Result(), named(c.Note)})
		}
	}
	b, err := json.Marshal(all)
	if len(all) == 0 || err != nil {
		return nil
	}
	return string(b)
}

// sum returns a getter for the use of models by a role.
func sum(role string, get func(*record.Usage) int64) func(*row) any {
	return func(r *row) any {
		u, ok := r.usage(role)
		if !ok {
			return nil
		}
		return get(&u)
	}
}

// cost returns a getter for the cost of models by a role.
func cost(role string) func(*row) any {
	return func(r *row) any {
		u, ok := r.usage(role)
		if !ok || u.CostUSD == nil {
			return nil
		}
		return *u.CostUSD
	}
}

func columnsOfUse() []Column {
	return []Column{
		{"steps", Integer, "number of the agent's steps", func(r *row) any {
			if r.steps == nil {
				return nil
			}
			return *r.steps
		}},
		{"requests", Integer, "requests to models in all roles", sum("", func(u *record.Usage) int64 { return u.Requests })},
		{"input_tokens", Integer, "input tokens of the agent's models, including cached ones", sum("agent", func(u *record.Usage) int64 { return u.InputTokens })},
		{"cached_tokens", Integer, "those of them that came from a cache", sum("agent", func(u *record.Usage) int64 { return u.CachedTokens })},
		{"output_tokens", Integer, "output tokens of the agent's models", sum("agent", func(u *record.Usage) int64 { return u.OutputTokens })},
		{"reasoning_tokens", Integer, "those of them that were spent on reasoning", sum("agent", func(u *record.Usage) int64 { return u.ReasoningTokens })},
		{"agent_cost_usd", Number, "cost of the agent's models", cost("agent")},
		{"cost_usd", Number, "cost of models in all roles", cost("")},
		{"agent_s", Number, "time charged to the agent, in seconds", of(func(r *record.Result) any { return r.AgentTime.Seconds() })},
		{"wall_s", Number, "time from start to end, in seconds", of(func(r *record.Result) any { return seconds(r.Start, r.End) })},
		{"start", Time, "when the attempt began", func(r *row) any {
			switch {
			case r.attempt == nil:
				return nil
			case r.attempt.Result != nil:
				return moment(r.attempt.Result.Start)
			default:
				return moment(r.attempt.Began)
			}
		}},
		{"end", Time, "when it ended", of(func(r *record.Result) any { return moment(r.End) })},
	}
}

func moment(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC()
}

// plugged returns a getter for the plugin of a kind.
func plugged(kind string, get func(*record.PluginUsed) string) func(*row) any {
	return func(r *row) any {
		p := r.plugin(kind)
		if p == nil {
			return nil
		}
		return text(get(p))
	}
}

func columnsOfOrigin() []Column {
	version := func(p *record.PluginUsed) string { return p.Name + " " + p.Version }
	digest := func(p *record.PluginUsed) string { return p.Digest }
	return []Column{
		{"agent_plugin", Text, "name and version of the agent's plugin", plugged("agent", version)},
		{"agent_digest", Text, "digest of its program", plugged("agent", digest)},
		{"environment_plugin", Text, "name and version of the environment's plugin", plugged("environment", version)},
		{"environment_digest", Text, "digest of its program", plugged("environment", digest)},
		{"image_digest", Text, "digest of the image", of(func(r *record.Result) any {
			if r.Image == nil {
				return nil
			}
			return text(r.Image.Digest)
		})},
		{"host", Text, "name of the machine", of(func(r *record.Result) any { return text(r.Host) })},
		{"berth", Text, "version of berth", of(func(r *record.Result) any { return text(r.Berth) })},
		{"folder", Text, "folder of the attempt in that of the run", func(r *row) any { return text(r.dir()) }},
	}
}

// maxScores is how many columns scores have at most, and labels, because a verifier
// may name either after anything.
const maxScores = 200

// more returns the columns for the axes, the scores and the labels of the trials, as
// the journal has them, and the number of scores and labels that have none.
func (r *Run) more() (columns []Column, left int) {
	axes, scores, labels := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, t := range r.Trials {
		for name := range r.Manifest.Cells[t.Cell].Choices {
			axes[name] = true
		}
		for i := range t.Attempts {
			if b := t.Attempts[i].Result; b != nil {
				for name := range b.Rewards {
					scores[name] = true
				}
				for name := range b.Labels {
					labels[name] = true
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(axes)) {
		columns = append(columns, Column{"axis_" + named(name), Text, "", func(r *row) any { return text(r.cell.Choices[name]) }})
	}
	names := slices.Sorted(maps.Keys(scores))
	left = max(0, len(names)-maxScores)
	for _, name := range names[:len(names)-left] {
		columns = append(columns, Column{"score_" + named(name), Number, "", of(func(r *record.Result) any {
			v, ok := r.Scores[name]
			if !ok {
				return nil
			}
			return v
		})})
	}
	names = slices.Sorted(maps.Keys(labels))
	without := max(0, len(names)-maxScores)
	for _, name := range names[:len(names)-without] {
		columns = append(columns, Column{"label_" + named(name), Text, "", of(func(r *record.Result) any { return text(r.Labels[name]) })})
	}
	return distinct(columns), left + without
}

func named(name string) string {
	s, _ := text(name).(string)
	return s
}

// distinct keeps the first of columns that have the same name.
func distinct(columns []Column) (kept []Column) {
	seen := map[string]bool{}
	for _, c := range columns {
		if !seen[c.Name] {
			seen[c.Name] = true
			kept = append(kept, c)
		}
	}
	return kept
}
