package store_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/environment"
)

func TestABriefHasWhatResumeCompares(t *testing.T) {
	t.Parallel()
	usd := 0.25
	b := store.BriefOf(&record.Result{
		Task: "t", Outcome: record.EnvironmentError, Error: &record.Error{Boundary: record.ByEnvironment, Message: "gone", Retry: true},
		Plugins: []record.PluginUsed{{Kind: "environment", Name: "e", Digest: "sha256:1"}, {Kind: "agent", Name: "a", Digest: "sha256:2"}},
		Image:   &environment.ImageFacts{Digest: "sha256:3"},
		Usage:   []record.Usage{{Requests: 2, InputTokens: 10, OutputTokens: 5, CostUSD: &usd}, {Requests: 1, InputTokens: 1}},
	})
	// A task may have a different image in another environment.
	want := map[string]string{"environment e": "sha256:1", "agent a": "sha256:2", "image of t in e": "sha256:3"}
	if !maps.Equal(b.Digests, want) {
		t.Errorf("digests %v, want %v", b.Digests, want)
	}
	if b.Error != "environment: gone" || !b.Retryable || b.Tokens != 16 || b.Requests != 3 || *b.CostUSD != 0.25 || !b.Unpriced {
		t.Errorf("brief: %+v", b)
	}
}

// The journal has the beginning of a long error and its cause, which is its end.
func TestABriefKeepsTheCauseOfAnError(t *testing.T) {
	t.Parallel()
	message := "image build failed: Dockerfile in " + strings.Repeat("dir/", 200) + "task: no such program: gcc"
	b := store.BriefOf(&record.Result{Error: &record.Error{Boundary: record.ByEnvironment, Message: message}})
	if len(b.Error) > 410 || !strings.HasPrefix(b.Error, "environment: image build failed") || !strings.HasSuffix(b.Error, "no such program: gcc") {
		t.Errorf("%q", b.Error)
	}
}
