package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/verifier"
)

// The prompts of both models may be the experiment's, with the placeholders of the
// published ones. What is put in is not looked at again.
func TestPromptsOfTheExperiment(t *testing.T) {
	t.Parallel()
	config, err := json.Marshal(map[string]string{
		"pairs_system": "SYSTEM-2", "pairs_prompt": "T={TASK_PROMPT} C={SUCCESS_CONDITION} A={ACTION_TEXT} P={PRIOR_STATE_SUMMARY_JSON}.",
		"final_system": "SYSTEM-3", "final_prompt": "T={TASK_PROMPT} C={SUCCESS_CONDITION} G={LLM_JUDGE_GT} O={OBJECTIVE_EVALUATION_RESULT} E={TRAJECTORY_EVENTS_JSON} F={FINAL_AGENT_ANSWER}.",
	})
	if err != nil {
		t.Fatal(err)
	}
	r := verifier.Request{
		View: threePictures().lay(t), Earlier: earlier(verifier.Fail), Config: config, Settings: json.RawMessage(`{"instruction":"Do {SUCCESS_CONDITION}.","llm_judge_gt":"TRUTH"}`),
	}
	_, pairs, final, err := judged(t, r, four("2"))
	if err != nil || len(pairs) != 1 || len(final) != 1 {
		t.Fatal(err, len(pairs), len(final))
	}
	for body, wants := range map[string][]string{
		string(pairs[0].Body): {"SYSTEM-2", `T=Do {SUCCESS_CONDITION}. C=Not provided A=click({\"bid\":\"12\"})\nfill(`, `P={\"visible_state_summary\":\"\"}.`},
		string(final[0].Body): {"SYSTEM-3", `T=Do {SUCCESS_CONDITION}. C=Not provided G=TRUTH O=0 E=[\n  {`, `\"visible_change_summary\": \"SUMMARY\"`, "F=LAST WORDS."},
	} {
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("no %q in %.2000s", want, body)
			}
		}
		if strings.Contains(body, "An agent work") {
			t.Error("the judge's own prompt is there, too")
		}
	}
}

// With the schema of the paper, confidence is a word, and the verdict of the
// comparator is context.
func TestTheSchemaOfThePaper(t *testing.T) {
	t.Parallel()
	a := four("4")
	a.pairs = []string{strings.Replace(aChange, "0.9", `"medium"`, 1)}
	v, pairs, final, err := judged(t, verifier.Request{View: threePictures().lay(t), Earlier: earlier(verifier.Fail), Config: json.RawMessage(`{"schema":"paper"}`)}, a)
	if err != nil || len(pairs) != 1 || len(v.Findings) != 0 || v.Scores[scoreName].Value != 4 {
		t.Fatalf("%+v, %v after %d questions", v, err, len(pairs))
	}
	if body := string(final[0].Body); !strings.Contains(body, `\"confidence\":\"medium\"`) || !strings.Contains(body, "supporting context") || strings.Contains(body, "binding") {
		t.Errorf("%.3000s", body)
	}
	for _, text := range []string{systemPairs, systemFinal, schemaPairs} {
		for _, c := range []Config{{}, {Schema: schemaPaper}} {
			if got := c.words(text); strings.Contains(got, "CONFIDENCE") || strings.Contains(got, "VERDICT") || strings.Contains(got, "SCHEMA") {
				t.Errorf("a part is not filled in: %s", got)
			}
		}
	}
}

// A score that is not possible is an error, or the nearest one that is.
func TestClamp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		binary verifier.Decision
		score  string
		want   float64
		note   bool
	}{{verifier.Fail, "5", 4, true}, {verifier.Fail, "4", 4, false}, {verifier.Pass, "5", 5, false}, {verifier.Pass, "7", 5, true}, {verifier.Fail, "0", 1, true}, {verifier.Pass, "3.6", 4, true}} {
		r := verifier.Request{View: threePictures().lay(t), Earlier: earlier(tt.binary), Config: json.RawMessage(`{"clamp":true}`)}
		v, _, _, err := judged(t, r, four(tt.score))
		if err != nil || v.Scores[scoreName].Value != tt.want || (len(v.Findings) == 1 && v.Findings[0].Code == clamped) != tt.note {
			t.Errorf("%s after %s: %+v, %v", tt.score, tt.binary, v, err)
		}
		r.Config = nil
		if _, _, _, err = judged(t, r, four(tt.score)); (err != nil) != tt.note {
			t.Errorf("%s after %s without clamp: %v", tt.score, tt.binary, err)
		}
	}
}

// Actions after the last picture are named: its score is about an older state.
func TestActionsAfterTheLastPicture(t *testing.T) {
	t.Parallel()
	s := threePictures()
	s.line(`"kind":"act","step":4,"action":"click","arguments":{},"error":"ValueError: covered"`, "")
	v, _, _, err := judged(t, verifier.Request{View: s.lay(t), Earlier: earlier(verifier.Pass)}, four("3"))
	if err != nil || len(v.Findings) != 0 {
		t.Errorf("after an action that was refused: %+v, %v", v.Findings, err)
	}
	s.act(5, "click", `{}`, "")
	v, _, _, err = judged(t, verifier.Request{View: s.lay(t), Earlier: earlier(verifier.Pass)}, four("3"))
	if err != nil || len(v.Findings) != 1 || v.Findings[0].Code != unseen || !strings.Contains(v.Findings[0].Text, "of step 3, and 1 actions") {
		t.Errorf("%+v, %v", v.Findings, err)
	}
}

// Without pairs only the last picture is judged, and nothing was left out.
func TestNoPairsAreNotLeftOut(t *testing.T) {
	t.Parallel()
	v, pairs, final, err := judged(t, verifier.Request{View: threePictures().lay(t), Earlier: earlier(verifier.Pass), Config: json.RawMessage(`{"max_pairs":0}`)}, four("3"))
	if err != nil || len(pairs) != 0 || len(final) != 1 || len(v.Findings) != 0 {
		t.Errorf("%+v, %v after %d questions about pairs", v, err, len(pairs))
	}
}
