package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"

	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/verifier"
)

// The scores of a verdict.
const (
	scoreName   = "score"       // (reward − bound) · scale + offset
	rewardName  = "reward"      // the reduced rewards
	outputsName = "outputs"     // replies of the agent's model
	unparsed    = "unparsed"    // those without an action
	sameAction  = "same_action" // how often the commonest action was done
)

// Words of settings.
const (
	reduceNone = "none" // makes no score: for surfaces that give no rewards
	stagesAll  = "all"
)

// ife is the label of an attempt in which the agent did not follow its instructions.
// Its value says why.
const ife = "ife"

type judge struct{}

// seen is what the record says.
type seen struct {
	rewards []float64
	actions map[string]int
	acts    int
	outputs int
	empty   int // outputs without an action
	bad     error
}

// Verify implements verifier.Verifier.
func (judge) Verify(ctx context.Context, r verifier.Request, _ func(string)) (v verifier.Verdict, err error) {
	var c Config
	if err = r.DecodeSettings(&c); err != nil {
		return v, err
	}
	if c.Stages == stagesAll {
		r.Stage = ""
	}
	s := seen{actions: map[string]int{}}
	if err = r.Lines("attempt/surface.jsonl", func(line []byte) { s.surface(line, r.Stage) }); errors.Is(err, fs.ErrNotExist) {
		return v, fmt.Errorf("attempt/surface.jsonl: %w: the task has no surface, or it was never opened", verifier.ErrArtifactMissing)
	}
	if err == nil { // an agent may have no steps
		err = r.AnyLines("attempt/steps.jsonl", func(line []byte) { s.step(line, r.Stage) })
	}
	if err == nil {
		err = errors.Join(s.bad, ctx.Err())
	}
	if err != nil {
		return v, err
	}
	same := 0
	for _, n := range s.actions {
		same = max(same, n)
	}
	v = verifier.Verdict{
		Decision: verifier.Scored, Labels: maps.Clone(c.Labels),
		Scores: map[string]verifier.Score{
			outputsName: {Value: float64(s.outputs)}, unparsed: {Value: float64(s.empty), Lower: true}, sameAction: {Value: float64(same), Lower: true},
		},
		Rationale: fmt.Sprintf("%d actions, the commonest one %d times; %d outputs, %d without an action", s.acts, same, s.outputs, s.empty),
	}
	reward := c.reduce(s.rewards)
	if c.Reduce != reduceNone {
		score := verifier.Score{Value: rounded((reward-c.Bound)*c.Scale + c.Offset)}
		if err = score.Valid(); err != nil {
			return v, err
		}
		v.Scores[scoreName], v.Scores[rewardName] = score, verifier.Score{Value: reward}
		v.Rationale = fmt.Sprintf("%d rewards, %s %g; %s", len(s.rewards), c.Reduce, reward, v.Rationale)
	}
	solved := c.Reduce != reduceNone && c.Bound > 0 && reward >= c.Bound
	if why := s.ife(&c, same, solved); why != "" {
		if v.Labels == nil {
			v.Labels = map[string]string{}
		}
		v.Labels[ife] = why
	}
	return v, nil
}

// ife says why an attempt counts as one that did not follow its instructions. One
// action repeats nothing, and a level may be solved by going right all the time.
func (s *seen) ife(c *Config, same int, solved bool) string {
	switch many := func(part, whole int) bool { return float64(part)/float64(whole) >= c.IfeAt }; {
	case s.outputs > 0 && many(s.empty, s.outputs):
		return fmt.Sprintf("%g %% or more of the outputs have no action", 100*c.IfeAt)
	case s.acts > 1 && !solved && many(same, s.acts):
		return fmt.Sprintf("%g %% or more of the actions are the same", 100*c.IfeAt)
	}
	return ""
}

// reduce makes one number of rewards. Without any it is 0.
func (c *Config) reduce(rewards []float64) float64 {
	sum, best := 0.0, 0.0
	if c.From > 0 {
		best = math.Inf(-1)
	}
	for i, r := range rewards {
		if sum += r; i+1 >= c.From {
			best = max(best, sum)
		}
	}
	switch {
	case len(rewards) == 0:
		return 0
	case c.Reduce == "last":
		return rewards[len(rewards)-1]
	case c.Reduce == "mean":
		return rounded(sum / float64(len(rewards)))
	case c.Reduce == "best" && math.IsInf(best, -1):
		return rounded(sum) // fewer steps than From
	case c.Reduce == "best":
		return rounded(best)
	}
	return rounded(sum)
}

// rounded removes what adding tenths leaves behind, so that a reward that is equal
// to the bound gives the offset itself.
func rounded(v float64) float64 {
	if math.Abs(v) > largest { // no digits are left
		return v
	}
	return math.Round(v*1e9) / 1e9
}

// surface counts a line of the record of the surface.
func (s *seen) surface(raw []byte, stage string) {
	var l surface.Line
	if json.Unmarshal(raw, &l) != nil || stage != "" && l.Stage != stage || l.Kind != surface.KindAct {
		return
	}
	if l.Reward != nil {
		if math.Abs(*l.Reward) > largest {
			s.bad = fmt.Errorf("%w: the surface gave %g in step %d", verifier.ErrBadReward, *l.Reward, l.Step)
		}
		s.rewards = append(s.rewards, *l.Reward)
	}
	if l.Error != "" {
		return
	}
	name := l.Action
	var b bytes.Buffer
	if len(l.Arguments) > 0 && json.Compact(&b, l.Arguments) == nil && b.String() != "{}" {
		name += b.String()
	}
	s.acts++
	s.actions[name]++
}

// step counts a line of the record of the agent's steps.
func (s *seen) step(raw []byte, stage string) {
	var l struct {
		Stage string          `json:"stage"`
		Role  string          `json:"role"`
		Step  trajectory.Step `json:"step"`
	}
	if json.Unmarshal(raw, &l) != nil || stage != "" && l.Stage != stage || l.Role != "agent" && l.Role != "oracle" || l.Step.Source != trajectory.Model {
		return
	}
	if n := l.Step.LLMCallCount; n != nil && *n == 0 {
		return // no model wrote it
	}
	s.outputs++
	if len(l.Step.ToolCalls) == 0 {
		s.empty++
	}
}
