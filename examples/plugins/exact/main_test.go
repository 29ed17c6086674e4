package main

import (
	"testing"

	"github.com/berth-eval/berth/plugins/verifier"
	"github.com/berth-eval/berth/plugins/verifier/verifiertest"
)

func TestContract(t *testing.T) {
	verifiertest.Run(t, verifiertest.Subject{
		Verifier: exactVerifier{}, Traits: verifier.Traits{Needs: verifier.NeedsNone},
		Cases: []verifiertest.Case{{
			Name: "equal", Want: verifier.Pass,
			Files: map[string]string{"tests/answer.txt": "42\n", "attempt/artifacts/answer.txt": "42\n"},
		}},
	})
}
