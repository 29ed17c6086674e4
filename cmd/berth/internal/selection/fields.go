package selection

import (
	"maps"
	"math"
	"slices"

	"github.com/expr-lang/expr/types"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// Field is a name that expressions may use.
type Field struct {
	Name string
	Type string // text, number, yes or no, list of texts, texts by name, numbers by name
	Text string // what it is; one line

	kind types.Type
	of   func(*Attempt) any
}

// Attempt is what an expression is evaluated on: an attempt of a trial. State is
// nil for a trial without an attempt.
type Attempt struct {
	Manifest *store.Manifest
	Trial    *store.TrialState
	State    *store.AttemptState

	notes []string // labels of readers
}

// brief returns the result of the attempt. An attempt without one has the result
// that nothing is known about.
func (a *Attempt) brief() *store.Brief {
	if a.State == nil || a.State.Result == nil {
		return &store.Brief{Integrity: record.Unknown}
	}
	return a.State.Result
}

func (a *Attempt) cell() *store.Cell { return &a.Manifest.Cells[a.Trial.Cell] }

// outcome returns the outcome of the attempt, or that of a trial without one.
func (a *Attempt) outcome() record.Outcome {
	if a.Trial.Invalid == "" && a.State != nil && a.State.Result != nil {
		return a.State.Result.Outcome
	}
	if a.Trial.Invalid != "" {
		return record.TaskInvalid
	}
	return record.NotRun
}

func (a *Attempt) number() int {
	if a.State == nil {
		return 0
	}
	return a.State.Number
}

func (a *Attempt) accepted() bool {
	acc := a.Trial.Accepted()
	return acc != nil && acc.Number == a.number()
}

func (a *Attempt) spend() store.Spend {
	if a.State == nil {
		return store.Spend{}
	}
	return a.Trial.Work(a.State).Spend()
}

// orNaN is NaN for a number that is not known, so that no comparison holds.
func orNaN(x *float64) float64 {
	if x == nil {
		return math.NaN()
	}
	return *x
}

// Fields are all names that expressions may use, in the order of the
// documentation.
var Fields = []Field{
	{
		Name: "task", Type: "text", Text: "name of the task", kind: types.String,
		of: func(a *Attempt) any { return a.Trial.Task },
	},
	{
		Name: "dataset", Type: "text", Text: "label of the dataset block", kind: types.String,
		of: func(a *Attempt) any { return a.Trial.Dataset },
	},
	{
		Name: "tags", Type: "list of texts", Text: "tags and keywords of the task", kind: types.Array(types.String),
		of: func(a *Attempt) any { return nonNil(a.Trial.Tags) },
	},
	{
		Name: "category", Type: "text", Text: "category of the task; empty if it has none", kind: types.String,
		of: func(a *Attempt) any { return a.Trial.Category },
	},
	{
		Name: "difficulty", Type: "text", Text: "difficulty of the task, as its author calls it; empty if it has none", kind: types.String,
		of: func(a *Attempt) any { return a.Trial.Difficulty },
	},
	{Name: "cell", Type: "texts by name", Text: "values on the axes of the matrix: `cell.agent`, `cell.model` and so on"},
	{
		Name: "agent", Type: "text", Text: "label of the agent block", kind: types.String,
		of: func(a *Attempt) any { return a.cell().Agent },
	},
	{
		Name: "model", Type: "text", Text: "label of the model block; empty if the cell has none", kind: types.String,
		of: func(a *Attempt) any { return a.cell().Model },
	},
	{
		Name: "environment", Type: "text", Text: "label of the environment block", kind: types.String,
		of: func(a *Attempt) any { return a.cell().Environment },
	},
	{Name: "trial", Type: "text", Text: "id of the trial", kind: types.String, of: func(a *Attempt) any { return a.Trial.ID }},
	{Name: "repetition", Type: "number", Text: "from 1", kind: types.Int, of: func(a *Attempt) any { return a.Trial.Repetition }},
	{
		Name: "attempt", Type: "number", Text: "number of the attempt, from 1; 0 if the trial has none", kind: types.Int,
		of: func(a *Attempt) any { return a.number() },
	},
	{
		Name: "attempts", Type: "number", Text: "how many attempts the trial has", kind: types.Int,
		of: func(a *Attempt) any { return len(a.Trial.Attempts) },
	},
	{
		Name: "accepted", Type: "yes or no", Text: "the attempt is the one that counts for its trial", kind: types.Bool,
		of: func(a *Attempt) any { return a.accepted() },
	},
	{
		Name: "outcome", Type: "text", Text: "such as `passed`, `failed` or `environment_error`; `not_run` if there is no result", kind: types.String,
		of: func(a *Attempt) any { return string(a.outcome()) },
	},
	{
		Name: "measured", Type: "yes or no", Text: "the attempt says something about the agent ([what is counted](experiment.md#what-is-counted))", kind: types.Bool,
		of: func(a *Attempt) any { return a.Trial.Invalid == "" && a.brief().Measured() },
	},
	{
		Name: "agent_end", Type: "text", Text: "how the agent ended: `yielded`, `timeout`, `budget` and so on; empty if it never began", kind: types.String,
		of: func(a *Attempt) any { return string(a.brief().AgentEnd) },
	},
	{
		Name: "integrity", Type: "text", Text: "`checked`, `exposed`, `violated` or `unknown`", kind: types.String,
		of: func(a *Attempt) any { return string(a.brief().Integrity) },
	},
	{
		Name: "mode", Type: "text", Text: "verification mode; empty if nothing was verified", kind: types.String,
		of: func(a *Attempt) any { return a.brief().Mode },
	},
	{
		Name: "score", Type: "number", Text: "the score that counts; no comparison with a missing one holds, except `!=`", kind: types.Float64,
		of: func(a *Attempt) any { return orNaN(a.brief().Score) },
	},
	{
		Name: "rewards", Type: "numbers by name", Text: "all scores of the verifiers: `rewards.reward`; 0 if there is none of the name", kind: types.TypeOf(map[string]float64{}),
		of: func(a *Attempt) any { return nonNilMap(a.brief().Rewards) },
	},
	{
		Name: "labels", Type: "texts by name", Text: "labels of the verdicts: `labels.status == \"pass\"`; empty if there is none of the name", kind: types.TypeOf(map[string]string{}),
		of: func(a *Attempt) any { return nonNilMap(a.brief().Labels) },
	},
	{
		Name: "notes", Type: "list of texts", Text: "labels that readers gave the attempt with `berth note`: `\"bad task\" in notes`", kind: types.Array(types.String),
		of: func(a *Attempt) any { return nonNil(a.notes) },
	},
	{
		Name: "cost", Type: "number", Text: "USD for all models of the attempt, also those of judges; of one that was verified again, that of its origin; a missing one as with `score`", kind: types.Float64,
		of: func(a *Attempt) any { s := a.spend(); return orNaN(s.CostUSD) },
	},
	{
		Name: "tokens", Type: "number", Text: "input and output of all models of the attempt", kind: types.Int64,
		of: func(a *Attempt) any { return a.spend().Tokens },
	},
	{Name: "requests", Type: "number", Text: "to models", kind: types.Int64, of: func(a *Attempt) any { return a.spend().Requests }},
	{Name: "steps", Type: "number", Text: "of the agent's trajectory", kind: types.Int64, of: func(a *Attempt) any { return a.brief().Steps }},
	{
		Name: "agent_time", Type: "number", Text: "seconds that the agent worked", kind: types.Float64,
		of: func(a *Attempt) any { return a.brief().AgentTime.Seconds() },
	},
	{
		Name: "time", Type: "number", Text: "seconds that the whole attempt took", kind: types.Float64,
		of: func(a *Attempt) any { return a.brief().End.Sub(a.brief().Start).Seconds() },
	},
	{
		Name: "error", Type: "text", Text: "who caused an error, and its message; empty if there was none", kind: types.String,
		of: func(a *Attempt) any { return a.brief().Error },
	},
	{Name: "oracle", Type: "yes or no", Text: "the agent had the reference solution", kind: types.Bool, of: func(a *Attempt) any { return a.brief().Oracle }},
	{
		Name: "modified", Type: "yes or no", Text: "the experiment changed settings of the task", kind: types.Bool,
		of: func(a *Attempt) any { return a.brief().Modified },
	},
}

func nonNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func nonNilMap[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

// axes returns the names of the axes of runs.
func axes(ms []*store.Manifest) []string {
	names := map[string]bool{}
	for _, m := range ms {
		for i := range m.Cells {
			for name := range m.Cells[i].Choices {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
