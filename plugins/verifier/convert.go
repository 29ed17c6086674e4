package verifier

import (
	"fmt"
	"math"

	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/proto/v1/pluginpb"
	"github.com/berth-eval/berth/plugins/proto/v1/verifierpb"
)

var decisions = wire.Enum[Decision, verifierpb.VerdictDecision]{Name: "decision", Pairs: []wire.Pair[Decision, verifierpb.VerdictDecision]{
	{Word: Pass, Number: verifierpb.VerdictDecision_VERDICT_DECISION_PASS},
	{Word: Fail, Number: verifierpb.VerdictDecision_VERDICT_DECISION_FAIL},
	{Word: Continue, Number: verifierpb.VerdictDecision_VERDICT_DECISION_CONTINUE},
	{Word: Scored, Number: verifierpb.VerdictDecision_VERDICT_DECISION_SCORED},
}}

var severities = wire.Enum[Severity, verifierpb.FindingSeverity]{Name: "severity", Pairs: []wire.Pair[Severity, verifierpb.FindingSeverity]{
	{Word: Note, Number: verifierpb.FindingSeverity_FINDING_SEVERITY_NOTE},
	{Word: Exposed, Number: verifierpb.FindingSeverity_FINDING_SEVERITY_EXPOSED},
	{Word: Violated, Number: verifierpb.FindingSeverity_FINDING_SEVERITY_VIOLATED},
}}

var needs = wire.Enum[Needs, pluginpb.VerifierNeeds]{Name: "needs", Pairs: []wire.Pair[Needs, pluginpb.VerifierNeeds]{
	{Word: NeedsNone, Number: pluginpb.VerifierNeeds_VERIFIER_NEEDS_NONE},
	{Word: NeedsSandbox, Number: pluginpb.VerifierNeeds_VERIFIER_NEEDS_SANDBOX},
	{Word: NeedsOwn, Number: pluginpb.VerifierNeeds_VERIFIER_NEEDS_OWN},
}}

// TraitsToProto converts t for Describe.
func TraitsToProto(t Traits) *pluginpb.VerifierTraits {
	return &pluginpb.VerifierTraits{Needs: needs.To(t.Needs), Models: wire.Texts(t.Models), Rounds: t.Rounds, OwnWith: wire.TextMap(t.OwnWith)}
}

// TraitsFromProto converts p and reports an invalid message.
func TraitsFromProto(p *pluginpb.VerifierTraits) (t Traits, err error) {
	t = Traits{Models: p.GetModels(), Rounds: p.GetRounds(), OwnWith: p.GetOwnWith()}
	t.Needs, err = needs.From(p.GetNeeds())
	return t, err
}

func requestToProto(r Request) *verifierpb.VerifierRequest {
	return &verifierpb.VerifierRequest{
		View: r.View, Stage: r.Stage, Round: int64(r.Round), RoundsLeft: int64(r.RoundsLeft),
		Earlier: wire.Each(r.Earlier, verdictToProto), Shell: r.Shell, Models: wire.Values(r.Models, model.EndpointToProto),
		User: r.User, Env: wire.TextMap(r.Env), TimeoutMs: wire.Millis(r.Timeout), Scratch: r.Scratch,
		SettingsJson: r.Settings, ConfigJson: r.Config,
	}
}

func requestFromProto(p *verifierpb.VerifierRequest) (r Request, err error) {
	r = Request{
		View: p.GetView(), Stage: p.GetStage(), Round: int(p.GetRound()), RoundsLeft: int(p.GetRoundsLeft()),
		Shell: p.GetShell(), User: p.GetUser(), Env: p.GetEnv(), Timeout: wire.Duration(p.GetTimeoutMs()), Scratch: p.GetScratch(),
	}
	if r.Earlier, err = wire.EachErr(p.GetEarlier(), verdictFromProto); err != nil {
		return r, fmt.Errorf("earlier verdict: %w", err)
	}
	if r.Models, err = wire.ValuesErr(p.GetModels(), model.EndpointFromProto); err != nil {
		return r, err
	}
	if r.Settings, err = wire.JSON("settings", p.GetSettingsJson()); err != nil {
		return r, err
	}
	r.Config, err = wire.JSON("config", p.GetConfigJson())
	return r, err
}

func verdictToProto(v Verdict) *verifierpb.Verdict {
	return &verifierpb.Verdict{
		Verifier: v.Verifier, Stage: v.Stage, Round: int64(v.Round), Decision: decisions.To(v.Decision),
		Scores: wire.Values(v.Scores, func(s Score) *verifierpb.Score {
			return &verifierpb.Score{Value: s.Value, Min: s.Min, Max: s.Max, LowerIsBetter: s.Lower}
		}),
		Checkpoints: wire.Each(v.Checkpoints, func(c Checkpoint) *verifierpb.Checkpoint {
			return &verifierpb.Checkpoint{Name: wire.Text(c.Name), Passed: c.Passed, Weight: c.Weight, Note: wire.Text(c.Note), Skipped: c.Skipped}
		}),
		Handoff: wire.Text(v.Handoff), Rationale: wire.Text(v.Rationale), Labels: wire.Values(v.Labels, wire.Text),
		Findings: wire.Each(v.Findings, func(f Finding) *verifierpb.VerdictFinding {
			return &verifierpb.VerdictFinding{Code: wire.Text(f.Code), Severity: severities.To(f.Severity), Text: wire.Text(f.Text)}
		}),
	}
}

func verdictFromProto(p *verifierpb.Verdict) (v Verdict, err error) {
	v = Verdict{
		Verifier: p.GetVerifier(), Stage: p.GetStage(), Round: int(p.GetRound()),
		Checkpoints: wire.Each(p.GetCheckpoints(), func(c *verifierpb.Checkpoint) Checkpoint {
			return Checkpoint{Name: c.GetName(), Passed: c.GetPassed(), Weight: c.GetWeight(), Note: c.GetNote(), Skipped: c.GetSkipped()}
		}),
		Handoff: p.GetHandoff(), Rationale: p.GetRationale(), Labels: wire.Values(p.GetLabels(), func(s string) string { return s }),
	}
	if v.Decision, err = decisions.From(p.GetDecision()); err != nil {
		return v, err
	}
	if v.Scores, err = wire.ValuesErr(p.GetScores(), scoreFromProto); err != nil {
		return v, fmt.Errorf("score %w", err)
	}
	v.Findings, err = wire.EachErr(p.GetFindings(), findingFromProto)
	return v, err
}

func scoreFromProto(p *verifierpb.Score) (Score, error) {
	s := Score{Value: p.GetValue(), Min: p.Min, Max: p.Max, Lower: p.GetLowerIsBetter()}
	if math.IsNaN(s.Value) || math.IsInf(s.Value, 0) {
		return s, fmt.Errorf("%w: %g is not a finite number", ErrBadReward, s.Value)
	}
	return s, nil
}

func findingFromProto(p *verifierpb.VerdictFinding) (f Finding, err error) {
	f = Finding{Code: p.GetCode(), Text: p.GetText()}
	if f.Severity, err = severities.From(p.GetSeverity()); err != nil {
		return f, fmt.Errorf("finding %q: %w", f.Code, err)
	}
	return f, nil
}
