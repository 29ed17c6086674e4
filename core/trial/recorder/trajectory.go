package recorder

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Whole is the content of a trajectory besides its steps.
type Whole struct {
	Session string
	Used    []record.Usage // of the agent's models, as it was metered; none: not known
}

// Trajectory makes the trajectory of the steps that the agent recorded in all
// of its sessions so far, as JSON. It reads them from the record, so that a
// killed agent has a trajectory, too. Nil when there are no steps.
func (s *Recorder) Trajectory(at record.Phase, dir string, who trajectory.Agent, w Whole) ([]byte, error) {
	recorded, err := readSteps(dir)
	if err != nil || len(recorded) == 0 {
		return nil, err
	}
	answered, err := replies(dir)
	if err != nil {
		return nil, err
	}
	meter(recorded, answered)
	var steps []trajectory.Step
	for i := range recorded {
		steps = append(steps, recorded[i].Step)
	}
	t, violations, err := trajectory.New(who, w.Session, steps)
	if err != nil {
		return nil, err
	}
	w.total(t.FinalMetrics)
	inNoStep(t)
	for i, v := range violations {
		if i == limits.ListedProcesses {
			break
		}
		s.Note(at, "trajectory", "%s", v)
	}
	b, err := s.Redactor().JSON(t)
	if err != nil {
		return nil, err
	}
	var pretty bytes.Buffer
	err = json.Indent(&pretty, b, "", "  ")
	pretty.WriteByte('\n')
	return pretty.Bytes(), err
}

// total replaces the totals of the steps, which the agent reported, by the
// metered usage.
func (w Whole) total(f *trajectory.FinalMetrics) {
	if len(w.Used) == 0 {
		return
	}
	f.PromptTokens, f.CompletionTokens, f.CachedTokens, f.CostUSD = new(int64), new(int64), new(int64), new(float64)
	for _, u := range w.Used {
		*f.PromptTokens += u.InputTokens
		*f.CompletionTokens += u.OutputTokens
		*f.CachedTokens += u.CachedTokens
		if u.CostUSD == nil {
			f.CostUSD = nil
		} else if f.CostUSD != nil {
			*f.CostUSD += *u.CostUSD
		}
	}
}

// readSteps reads the steps of the agent.
func readSteps(dir string) (steps []record.Step, err error) {
	err = eachLine(dir, record.StepsFile, func(line []byte) {
		var l record.Step
		if json.Unmarshal(line, &l) == nil && l.Role != string(agent.RoleUser) {
			steps = append(steps, l)
		}
	})
	return steps, err
}

// replies returns the answered requests of the agent, in the order in which
// they began.
func replies(dir string) (all []gateway.Exchange, err error) {
	err = eachLine(dir, record.ExchangesFile, func(line []byte) {
		var x gateway.Exchange
		if json.Unmarshal(line, &x) == nil && x.Usage != nil && x.Kind == recording.KindGenerate && x.Role == string(agent.RoleAgent) {
			all = append(all, x)
		}
	})
	slices.SortStableFunc(all, func(a, b gateway.Exchange) int { return a.Time.Compare(b.Time) })
	return all, err
}

// eachLine reads a file of lines of the record. Without the file there are none. A torn
// last line is passed on like the others.
func eachLine(dir, file string, each func(line []byte)) error {
	if _, err := untrusted.Lines(dir, file, 2*limits.StepBytes, math.MaxInt64, each); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// meter gives steps the usage that the gateway measured for their requests, in
// place of what the agent reported. A step that names its response gets that
// one. The others of a turn get the other responses of the turn in order, if
// there are as many.
func meter(steps []record.Step, replies []gateway.Exchange) {
	for len(steps) > 0 {
		turn, first := 1, &steps[0]
		for turn < len(steps) && steps[turn].Stage == first.Stage && steps[turn].Turn == first.Turn {
			turn++
		}
		end := len(replies)
		if turn < len(steps) {
			end = since(replies, steps[turn].Time)
		}
		meterTurn(steps[:turn], replies[min(since(replies, first.Time), end):end])
		steps, replies = steps[turn:], replies[end:]
	}
}

// since returns the index of the first reply whose request began at t or later.
func since(replies []gateway.Exchange, t time.Time) int {
	i := slices.IndexFunc(replies, func(x gateway.Exchange) bool { return !x.Time.Before(t) })
	if i < 0 {
		return len(replies)
	}
	return i
}

func meterTurn(steps []record.Step, replies []gateway.Exchange) {
	var asking []*trajectory.Step // steps with a request that is not known yet
	for i := range steps {
		if s := &steps[i].Step; s.Source == trajectory.Model && (s.LLMCallCount == nil || *s.LLMCallCount == 1) {
			asking = append(asking, s)
		} else if s.Source == trajectory.Model && *s.LLMCallCount > 1 {
			return
		}
	}
	replies = slices.Clone(replies)
	asking = slices.DeleteFunc(asking, func(s *trajectory.Step) bool {
		var named struct {
			Response string `json:"response_id"`
		}
		if json.Unmarshal(s.Extra, &named) != nil || named.Response == "" {
			return false
		}
		i := slices.IndexFunc(replies, func(x gateway.Exchange) bool { return x.ResponseID == named.Response })
		if i < 0 {
			return false
		}
		measured(s, &replies[i])
		replies = slices.Delete(replies, i, i+1)
		return true
	})
	whole := slices.DeleteFunc(slices.Clone(replies), func(x gateway.Exchange) bool { return x.Broken != "" })
	if len(asking) == len(whole) { // there is no step of an answer that was cut off
		replies = whole
	}
	if len(asking) == len(replies) {
		for i, s := range asking {
			measured(s, &replies[i])
		}
	}
}

// measured sets the metrics of a step to those of its request.
func measured(s *trajectory.Step, x *gateway.Exchange) {
	m := trajectory.Metrics{}
	if s.Metrics != nil {
		m = *s.Metrics
	}
	m.PromptTokens, m.CachedTokens, m.CompletionTokens, m.CostUSD = &x.Usage.Input, &x.Usage.Cached, &x.Usage.Output, x.CostUSD
	s.Metrics = &m
}

// inNoStep adds to the totals how many tokens of them are in no step, if there
// are any.
func inNoStep(t *trajectory.Trajectory) {
	f := t.FinalMetrics
	if f == nil || f.PromptTokens == nil || f.CompletionTokens == nil {
		return
	}
	in, out := *f.PromptTokens, *f.CompletionTokens
	for i := range t.Steps {
		if m := t.Steps[i].Metrics; m != nil && m.PromptTokens != nil && m.CompletionTokens != nil {
			in, out = in-*m.PromptTokens, out-*m.CompletionTokens
		}
	}
	if in != 0 || out != 0 {
		f.Extra, _ = json.Marshal(map[string]any{"in_no_step": map[string]int64{"prompt_tokens": in, "completion_tokens": out}})
	}
}
