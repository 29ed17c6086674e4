// Command exact is a verifier that compares answer.txt with the reference.
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
	if err != nil { // a missing or bad answer is not an error of the verifier
		return verifier.Judge(false, err.Error()), nil
	}
	return verifier.Judge(bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(want)), "compared answer.txt"), nil
}

func main() {
	info := plugins.Info{Name: "exact", Version: "1.0.0", Doc: "Compares answer.txt with the reference."}
	plugins.Serve(plugins.Verifier(info, nil, verifier.Traits{Needs: verifier.NeedsNone}, exactVerifier{}))
}
