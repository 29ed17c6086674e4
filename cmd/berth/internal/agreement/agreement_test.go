package agreement_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/agreement"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/verifier"
)

// attempt writes the folder of an attempt.
func attempt(t *testing.T, r record.Result, steps, exchanges []string) string {
	t.Helper()
	dir := t.TempDir()
	b, err := json.Marshal(&r)
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, record.ModelDir), 0o755)
	}
	for name, text := range map[string]string{record.ResultFile: string(b), record.StepsFile: strings.Join(steps, "\n"), record.ExchangesFile: strings.Join(exchanges, "\n")} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTheFirstDifferenceOfEachKindIsSaid(t *testing.T) {
	t.Parallel()
	passed := record.Result{Version: 1, Outcome: record.Passed, Scores: map[string]float64{"reward": 1}}
	failed := record.Result{
		Version: 1, Outcome: record.AgentError, Error: &record.Error{Message: "it broke"},
		Findings: []record.Finding{{Finding: verifier.Finding{Code: "replay_differs", Text: "message 3 is new"}}},
	}
	step := func(args string) string {
		return `{"role":"agent","step":{"step_id":1,"source":"agent","tool_calls":[{"tool_call_id":"a","function_name":"bash","arguments":` + args + `}]}}`
	}
	said := `{"role":"user","step":{"step_id":1,"source":"agent","tool_calls":[{"tool_call_id":"a","function_name":"say","arguments":{}}]}}`
	request := func(role, match, more string) string {
		return `{"role":"` + role + `","name":"default","match":"` + match + `","usage":{"input":1}` + more + `}`
	}
	for name, tt := range map[string]struct {
		is               record.Result
		steps, exchanges []string
		want             []string
	}{
		"the same":           {passed, []string{step(`{"c": "ls"}`)}, []string{request("agent", "1", ""), request("judge", "2", "")}, nil},
		"a user's tools":     {passed, []string{said, step(`{"c":"ls"}`)}, []string{request("agent", "1", ""), request("judge", "2", "")}, nil},
		"roles in turn":      {passed, []string{step(`{"c":"ls"}`)}, []string{request("judge", "2", ""), request("agent", "1", "")}, nil},
		"a retry":            {passed, []string{step(`{"c":"ls"}`)}, []string{request("agent", "1", ""), request("agent", "1", `,"retry":true`), request("judge", "2", "")}, nil},
		"values that change": {passed, []string{step(`{"c":"ls"}`)}, []string{request("agent", "9", `,"alike":true`), request("judge", "2", "")}, nil},
		"another command": {passed, []string{step(`{"c":"rm"}`)}, []string{request("agent", "1", ""), request("judge", "2", "")}, []string{
			`tool call 1: recorded bash {"c":"ls"}, replayed bash {"c":"rm"}`,
		}},
		"everything": {failed, nil, []string{request("agent", "3", ""), request("judge", "2", "")}, []string{
			"outcome: recorded passed, replayed agent_error (it broke)", "score reward: recorded 1, replayed none",
			`tool call 1: recorded bash {"c":"ls"}, replayed none`,
			"request 1 of agent to model default: recorded 1 requests, replayed 1, and this one differs: message 3 is new",
		}},
		"one more request": {passed, []string{step(`{"c":"ls"}`)}, []string{request("agent", "1", ""), request("judge", "2", ""), request("user", "2", "")}, []string{
			"user to model default: recorded no requests, replayed 1",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			was := attempt(t, passed, []string{step(`{"c":"ls"}`)}, []string{request("agent", "1", ""), request("judge", "2", "")})
			d, err := agreement.Compare(was, attempt(t, tt.is, tt.steps, tt.exchanges))
			if err != nil || strings.Join(d.Texts(), "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("%v\ngot  %q\nwant %q", err, d.Texts(), tt.want)
			}
		})
	}
}
