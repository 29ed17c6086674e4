package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-eval/berth/plugins/verifier"
	"github.com/berth-eval/berth/verifiers/supervisor/internal/rules"
)

// loopResult is the verifier that makes the result of an attempt.
type loopResult struct{}

// Reasons for which the loop of turns ended, as the record has them.
const (
	endTotal     = "total"      // the time of all turns is used up
	endFollowUps = "follow_ups" // no message is left
)

// Verify implements verifier.Verifier.
func (loopResult) Verify(_ context.Context, r verifier.Request, _ func(string)) (v verifier.Verdict, err error) {
	var s ResultConfig
	if err = r.DecodeSettings(&s); err != nil {
		return v, err
	}
	ends, why, err := turns(&r)
	if err != nil {
		return v, err
	}
	loop := rules.Loop{Threshold: s.Threshold, CompletedOnly: s.CompletedOnly, TotalOver: why == endTotal, FollowUpsOver: why == endFollowUps}
	if len(ends) > 0 {
		loop.LastCut = ends[len(ends)-1].End == "timeout"
	}
	judged, err := rounds(&r)
	if err != nil {
		return v, err
	}
	for _, e := range judged {
		loop.Rounds = append(loop.Rounds, rules.Round{
			Verdict: verifier.Decision(e.Labels[labelVerdict]), Score: e.Scores[scoreName].Value, Completed: e.Labels[labelTurn] == "complete", Gate: rules.GateResult(e.Labels[labelGate]),
		})
	}
	if len(loop.Rounds) == 0 {
		return v, errors.New("there is no judgement of the verifier supervisor: loop-result makes the result out of its rounds")
	}
	res := loop.Result()
	passed := 0.0
	if res.Passed {
		passed = 1
	}
	v = verifier.Judge(res.Passed, fmt.Sprintf("%s after %d rounds: the best score is %.4g, %.4g is needed", res.Status, len(loop.Rounds), res.Final, s.Threshold))
	v.Scores = map[string]verifier.Score{
		"passed": verifier.Share(passed), "final_score": verifier.Share(res.Final), "last_score": verifier.Share(res.Last),
	}
	v.Labels = map[string]string{"status": string(res.Status)}
	return v, nil
}
