package verifier_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/servetest"
	"github.com/berth-eval/berth/plugins/proto/v1/verifierpb"
	"github.com/berth-eval/berth/plugins/verifier"
)

// plain answers with what the test says.
type plain func(ctx context.Context, r verifier.Request, log func(string)) (verifier.Verdict, error)

func (p plain) Verify(ctx context.Context, r verifier.Request, log func(string)) (verifier.Verdict, error) {
	return p(ctx, r, log)
}

type rewriting struct{ plain }

func (rewriting) Rewrite(_ context.Context, r verifier.Request, v verifier.Verdict, candidate string) (string, error) {
	return strings.Join([]string{r.Stage, string(v.Decision), candidate}, " "), nil
}

func connect(t *testing.T, v verifier.Verifier) verifier.Verifier {
	t.Helper()
	conn := servetest.Dial(t, func(s *grpc.Server) {
		verifierpb.RegisterVerifierServer(s, verifier.NewServer(map[string]verifier.Verifier{"it": v}))
	})
	return verifier.NewClient(conn, "it", verifier.Capabilities(v))
}

func quiet(string) {}

func TestVerify(t *testing.T) {
	t.Parallel()
	v := connect(t, plain(func(_ context.Context, r verifier.Request, log func(string)) (verifier.Verdict, error) {
		log("looking at " + r.View)
		return verifier.Verdict{Decision: verifier.Fail, Rationale: r.Stage, Scores: map[string]verifier.Score{"a": {Value: 0.5}}}, nil
	}))
	var logs []string
	got, err := v.Verify(t.Context(), verifier.Request{View: "/view", Stage: "first"}, func(line string) { logs = append(logs, line) })
	if err != nil || got.Decision != verifier.Fail || got.Rationale != "first" || got.Scores["a"].Value != 0.5 || !slices.Equal(logs, []string{"looking at /view"}) {
		t.Errorf("got %+v, %v with logs %q", got, err, logs)
	}
}

func TestRewriteIsThereExactlyIfItIsAnnounced(t *testing.T) {
	t.Parallel()
	answer := plain(func(context.Context, verifier.Request, func(string)) (verifier.Verdict, error) {
		return verifier.Verdict{}, nil
	})
	if _, ok := connect(t, answer).(verifier.Rewriter); ok {
		t.Error("a verifier that does not rewrite says that it does")
	}
	r, ok := connect(t, rewriting{answer}).(verifier.Rewriter)
	if !ok {
		t.Fatal("a verifier that rewrites does not say so")
	}
	got, err := r.Rewrite(t.Context(), verifier.Request{Stage: "s"}, verifier.Verdict{Decision: verifier.Continue}, "hello")
	if err != nil || got != "s continue hello" {
		t.Errorf("Rewrite = %q, %v", got, err)
	}
	// One that announces it and does not have it.
	conn := servetest.Dial(t, func(s *grpc.Server) {
		verifierpb.RegisterVerifierServer(s, verifier.NewServer(map[string]verifier.Verifier{"it": answer}))
	})
	liar, ok := verifier.NewClient(conn, "it", []string{verifier.CapabilityRewrite}).(verifier.Rewriter)
	if !ok {
		t.Fatal("an announced capability is not there")
	}
	if _, err = liar.Rewrite(t.Context(), verifier.Request{}, verifier.Verdict{Decision: verifier.Continue}, "hello"); !errors.Is(err, environment.ErrUnsupported) {
		t.Errorf("Rewrite = %v, want ErrUnsupported", err)
	}
}

func TestAVerdictThatMakesNoSenseNeverArrives(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		verdict verifier.Verdict
		err     error
		want    error
	}{
		"no decision":     {want: fault.ErrPanic},
		"NaN":             {verdict: verifier.Verdict{Decision: verifier.Scored, Scores: map[string]verifier.Score{"a": {Value: math.NaN()}}}, want: verifier.ErrBadReward},
		"an error":        {err: verifier.ErrArtifactMissing, want: verifier.ErrArtifactMissing},
		"an error counts": {verdict: verifier.Verdict{Decision: verifier.Pass}, err: verifier.ErrBadReward, want: verifier.ErrBadReward},
	} {
		v := connect(t, plain(func(context.Context, verifier.Request, func(string)) (verifier.Verdict, error) {
			return tt.verdict, tt.err
		}))
		got, err := v.Verify(t.Context(), verifier.Request{}, quiet)
		if !errors.Is(err, tt.want) || got.Decision != "" {
			t.Errorf("%s: got %+v, %v; want %v", name, got, err, tt.want)
		}
	}
}

// other speaks the contract without our shim.
type other struct {
	verifierpb.UnimplementedVerifierServer

	events []*verifierpb.VerifyEvent
}

func (o other) Verify(_ *verifierpb.VerifyRequest, stream grpc.ServerStreamingServer[verifierpb.VerifyEvent]) error {
	for _, e := range o.events {
		if err := stream.Send(e); err != nil {
			return err
		}
	}
	return nil
}

func TestWhatAForeignPluginMaySend(t *testing.T) {
	t.Parallel()
	verdict := func(v *verifierpb.Verdict) *verifierpb.VerifyEvent {
		return &verifierpb.VerifyEvent{Event: &verifierpb.VerifyEvent_Verdict{Verdict: v}}
	}
	pass := verdict(&verifierpb.Verdict{Decision: verifierpb.VerdictDecision_VERDICT_DECISION_PASS})
	for _, tt := range []struct {
		name   string
		events []*verifierpb.VerifyEvent
		err    string
	}{
		{"a verdict", []*verifierpb.VerifyEvent{pass}, ""},
		{"an event of a later version", []*verifierpb.VerifyEvent{{}, pass}, ""},
		{"nothing", nil, "without a verdict"},
		{"two verdicts", []*verifierpb.VerifyEvent{pass, pass}, "after its verdict"},
		{"no decision", []*verifierpb.VerifyEvent{verdict(&verifierpb.Verdict{})}, "decision is not given"},
		{"NaN", []*verifierpb.VerifyEvent{verdict(&verifierpb.Verdict{
			Decision: verifierpb.VerdictDecision_VERDICT_DECISION_SCORED, Scores: map[string]*verifierpb.Score{"a": {Value: math.NaN()}},
		})}, `scores "a": bad reward`},
	} {
		conn := servetest.Dial(t, func(s *grpc.Server) { verifierpb.RegisterVerifierServer(s, other{events: tt.events}) })
		v, err := verifier.NewClient(conn, "it", nil).Verify(t.Context(), verifier.Request{}, quiet)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || err == nil && v.Decision != verifier.Pass {
			t.Errorf("%s: got %+v, %v; want error %q", tt.name, v, err, tt.err)
		}
	}
}
