// Command exact is a verifier: does answer.txt hold what the reference does?
package main

import (
	"bytes"
	"context"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/verifier"
)

type exactVerifier struct{}

func (exactVerifier) Verify(_ context.Context, r verifier.Request, _ func(string)) (v verifier.Verdict, err error) {
	want, err := r.ReadFile("tests/answer.txt", 1<<20)
	if err != nil {
		return v, err
	}
	got, err := r.ReadFile("attempt/artifacts/answer.txt", 1<<20)
	if err != nil { // what the agent left, or did not leave, is no fault of ours
		return verifier.Judge(false, err.Error()), nil
	}
	return verifier.Judge(bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(want)), "compared answer.txt"), nil
}

func main() {
	info := plugins.Info{Name: "exact", Version: "1.0.0", Doc: "Compares answer.txt with the reference."}
	plugins.Serve(plugins.Verifier(info, nil, verifier.Traits{Needs: verifier.NeedsNone}, exactVerifier{}))
}
