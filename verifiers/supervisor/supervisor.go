package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/model/chat/viewtools"
	"github.com/berth-eval/berth/plugins/verifier"
	"github.com/berth-eval/berth/verifiers/supervisor/internal/rules"
)

// scoreName is the name of the supervisor's score.
const scoreName = "score"

// Names of labels of a judgement. A tag is a separate label, with the text
// "yes".
const (
	labelVerdict    = "verdict"
	labelState      = "attempt_state"
	labelConfidence = "confidence"
	labelTurn       = "turn" // complete or incomplete
	labelGate       = "gate"
)

// Limits of one judgement.
const (
	maxCall  = 300 * time.Second // of one reply of the model
	maxTries = 3                 // of a call that takes longer
	maxAll   = 900 * time.Second
	maxCalls = 60        // replies of the model that call tools
	maxFile  = 64 << 20  // bytes of the task and of the rubric
	maxTask  = 256 << 10 // bytes of the task in the first message
)

// errLong is the cause of the end of a judgement that takes too long.
var errLong = fmt.Errorf("the supervisor took longer than %s", maxAll)

// supervisor is the verifier.
type supervisor struct{}

// Verify judges one round.
func (supervisor) Verify(ctx context.Context, r verifier.Request, log func(string)) (v verifier.Verdict, err error) {
	s, err := settingsOf(&r)
	if err != nil {
		return v, err
	}
	if _, err = r.ReadFile(s.Rubric, maxFile); err != nil {
		return v, fmt.Errorf("the rubric: %v", err) //nolint:errorlint // it is not an artifact that the agent did not leave
	}
	end, ok := r.Models["default"]
	if !ok {
		return v, errors.New("the supervisor needs a model: write model = … in its verifier block")
	}
	m, err := chat.Dial(end)
	if err != nil {
		return v, err
	}
	defer m.Close()
	gate, err := completed(&r, rules.Policy(s.Gate))
	if err != nil {
		return v, err
	}
	reply, err := judge(ctx, m, &r, &s, log)
	if err != nil {
		return v, err
	}
	j, err := rules.Check(reply)
	if err != nil {
		return v, err
	}
	j, result := j.Normalised(r.RoundsLeft).Gated(gate, r.RoundsLeft)
	if r.Round == 0 && j.Verdict == verifier.Continue { // the task has no messages of a user
		j.Verdict = verifier.Fail
	}
	v = verdict(&j, gate, result, s.HandoffScore)
	if result == rules.Deferred && s.Deferred == "stop" {
		v.Decision = verifier.Fail // the user is not asked; the labels say what was judged
	}
	return v, nil
}

// verdict writes a judgement as a verdict.
func verdict(j *rules.Judgement, gate rules.Gate, result rules.GateResult, handoffScore bool) verifier.Verdict {
	turn := "incomplete"
	if gate == rules.Complete {
		turn = "complete"
	}
	v := verifier.Verdict{
		Decision: j.Verdict, Scores: map[string]verifier.Score{scoreName: verifier.Share(j.Score)},
		Handoff: j.Handoff(handoffScore), Rationale: j.Rationale,
		Labels: map[string]string{
			labelVerdict: string(j.Verdict), labelState: string(j.State), labelConfidence: string(j.Confidence), labelTurn: turn, labelGate: string(result),
		},
	}
	for _, t := range j.Tags {
		v.Labels[string(t)] = "yes"
	}
	if len(j.Missing) > 0 {
		v.Rationale = strings.TrimSpace(v.Rationale + "\nMissing: " + strings.Join(j.Missing, ", "))
	}
	return v
}

// completed reports whether the agent completed the turn that is judged.
func completed(r *verifier.Request, p rules.Policy) (rules.Gate, error) {
	ends, _, err := turns(r)
	if err != nil || len(ends) == 0 {
		return rules.Interrupted, err
	}
	last := ends[len(ends)-1]
	step, err := lastStep(r, last.Number)
	return rules.Completed(last.Turn, step, p), err
}

// judge asks the model until it replies without calling tools.
func judge(ctx context.Context, m chat.Model, r *verifier.Request, s *Config, log func(string)) (reply rules.Reply, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxAll, errLong)
	defer cancel()
	task, err := r.ReadFile("instruction.md", maxFile)
	if err != nil {
		return reply, err
	}
	said, err := steps(r)
	if err != nil {
		return reply, err
	}
	own := bench{request: r}
	defer own.close()
	tools := viewtools.Tools
	if s.Tools == toolsSandbox {
		tools = append(slices.Clone(tools), runTool)
	}
	q := chat.Request{
		System: instructions(s, string(task)), Tools: tools, Schema: json.RawMessage(schema), Effort: s.Effort, Temperature: s.Temperature,
		Messages: []chat.Message{{Role: chat.User, Text: firstMessage(r, s, string(task), said)}},
	}
	for calls := 0; ; calls++ {
		if calls == maxCalls { // from here on it has to judge
			q.Tools = nil
		}
		a, err := ask(ctx, m, q, log)
		if err != nil {
			return reply, err
		}
		if len(a.Calls) == 0 {
			if err = json.Unmarshal(a.JSON, &reply); err != nil {
				return reply, fmt.Errorf("the supervisor's reply: %w", err)
			}
			return reply, nil
		}
		if calls > maxCalls {
			return reply, fmt.Errorf("%w: the supervisor calls tools and does not judge, after %d replies", chat.ErrBadReply, calls)
		}
		results := make([]chat.Result, len(a.Calls))
		for i, c := range a.Calls {
			log(fmt.Sprintf("%s %s", c.Name, brief(c.Arguments)))
			if c.Name != runTool.Name || s.Tools != toolsSandbox {
				results[i] = viewtools.View(r.View).Do(c)
			} else if results[i], err = own.do(ctx, c); err != nil {
				return reply, err
			}
		}
		q.Messages = append(q.Messages, chat.Message{Role: chat.Assistant, Text: a.Text, Calls: a.Calls}, chat.Message{Role: chat.User, Results: results})
	}
}

// ask asks the model, again if it takes too long.
func ask(ctx context.Context, m chat.Model, q chat.Request, log func(string)) (a chat.Reply, err error) {
	for try := 1; ; try++ {
		limited, cancel := context.WithTimeoutCause(ctx, maxCall, fmt.Errorf("%w: it took longer than %s to reply", chat.ErrUnavailable, maxCall))
		a, err = m.Ask(limited, q)
		late := limited.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err != nil && try > 1 && errors.Is(context.Cause(ctx), errLong): // no try had a reply
			return a, fmt.Errorf("%w: %w", chat.ErrUnavailable, err)
		case err == nil || !late || try == maxTries:
			return a, err
		}
		log(fmt.Sprintf("try %d: %s", try, err))
	}
}

// Rewrite makes the message to the agent out of what the user replied.
func (supervisor) Rewrite(_ context.Context, r verifier.Request, v verifier.Verdict, candidate string) (string, error) {
	task, err := r.ReadFile("instruction.md", maxFile)
	if err != nil {
		return "", err
	}
	if v.Labels[labelGate] == string(rules.Deferred) { // and the setting is "nudge"
		return rules.Nudge(string(task)), nil
	}
	var said struct {
		Candidate string `json:"candidate_feedback"`
	}
	if json.Unmarshal([]byte(candidate), &said) != nil { // the user is another plugin, or a person
		said.Candidate = candidate
	}
	return rules.Message(said.Candidate, rules.State(v.Labels[labelState]), string(task)), nil
}

// ownVerdicts returns those of the supervisor.
func ownVerdicts(all []verifier.Verdict) (own []verifier.Verdict) {
	for _, v := range all {
		if _, ok := v.Scores[scoreName]; ok && v.Labels[labelGate] != "" {
			own = append(own, v)
		}
	}
	return own
}

// brief returns the beginning of the arguments of a call, for the log.
func brief(arguments []byte) string {
	return strings.ToValidUTF8(string(arguments[:min(len(arguments), 400)]), "")
}
