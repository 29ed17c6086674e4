package rules

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-eval/berth/plugins/verifier"
)

func reply(verdict string, more ...func(*Reply)) Reply {
	r := Reply{Verdict: verdict, State: "in_progress", Score: 0.5, Confidence: "high"}
	for _, f := range more {
		f(&r)
	}
	return r
}

func TestTheWordsOfAReplyAreChecked(t *testing.T) {
	for _, c := range []struct {
		name string
		in   Reply
		want Judgement
	}{
		{"pass is not recoverable", reply("pass", func(r *Reply) { r.Recoverable = true }), Judgement{Verdict: verifier.Pass, State: InProgress, Score: 0.5, Confidence: High}},
		{"continue is", reply("continue"), Judgement{Verdict: verifier.Continue, State: InProgress, Recoverable: true, Score: 0.5, Confidence: High}},
		{"fail keeps its word", reply("fail", func(r *Reply) { r.Recoverable = true }), Judgement{Verdict: verifier.Fail, State: InProgress, Recoverable: true, Score: 0.5, Confidence: High}},
		{"a fault of the machine fails", reply("infra_error"), Judgement{Verdict: verifier.Fail, State: InProgress, Score: 0.5, Confidence: High}},
		{"a limit fails", reply("rate_limit"), Judgement{Verdict: verifier.Fail, State: InProgress, Score: 0.5, Confidence: High}},
		{"a bad state follows pass", reply("pass", func(r *Reply) { r.State = "good" }), Judgement{Verdict: verifier.Pass, State: CompleteAndPassed, Score: 0.5, Confidence: High}},
		{"a bad state follows continue", reply("continue", func(r *Reply) { r.State = "" }), Judgement{Verdict: verifier.Continue, State: InProgress, Recoverable: true, Score: 0.5, Confidence: High}},
		{"a bad state follows fail", reply("fail", func(r *Reply) { r.State = "x" }), Judgement{Verdict: verifier.Fail, State: TerminalFailure, Score: 0.5, Confidence: High}},
		{"a huge score", reply("continue", func(r *Reply) { r.Score = 1e9; r.Confidence = "certain" }), Judgement{Verdict: verifier.Continue, State: InProgress, Recoverable: true, Score: 1, Confidence: Medium}},
		{"a score below 0", reply("continue", func(r *Reply) { r.Score = -3 }), Judgement{Verdict: verifier.Continue, State: InProgress, Recoverable: true, Confidence: High}},
		{"no number", reply("continue", func(r *Reply) { r.Score = math.NaN() }), Judgement{Verdict: verifier.Continue, State: InProgress, Recoverable: true, Confidence: High}},
		{
			"unknown tags go, and those that are there already",
			reply("continue", func(r *Reply) {
				r.Tags = []string{"buy_now", "credential_hygiene", "follow_public_task", "credential_hygiene"}
			}),
			Judgement{Verdict: verifier.Continue, State: InProgress, Recoverable: true, Score: 0.5, Confidence: High, Tags: []Tag{"credential_hygiene", "follow_public_task"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Check(c.in)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
	if _, err := Check(reply("maybe\x1b[2J")); err == nil || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("an unknown verdict: %v", err)
	}
}

func TestLongTextsOfAReplyAreCut(t *testing.T) {
	got, err := Check(reply("continue", func(r *Reply) {
		r.Rationale = strings.Repeat("长", MaxRationale+1)
		for range 12 {
			r.Missing = append(r.Missing, strings.Repeat("f", MaxArtifact+1))
		}
	}))
	if err != nil || len([]rune(got.Rationale)) != MaxRationale || len(got.Missing) != MaxMissing || len(got.Missing[0]) != MaxArtifact {
		t.Errorf("%d characters, %d artifacts, %v", len([]rune(got.Rationale)), len(got.Missing), err)
	}
}

func TestFailuresThatTheUserCanHelpWithGoOn(t *testing.T) {
	for _, c := range []struct {
		name string
		in   Judgement
		left int
		want Judgement
	}{
		{"pass", Judgement{Verdict: verifier.Pass, State: InProgress, Recoverable: true}, 2, Judgement{Verdict: verifier.Pass, State: CompleteAndPassed}},
		{"complete but failed", Judgement{Verdict: verifier.Fail, State: CompleteButFailed}, 1, Judgement{Verdict: verifier.Continue, State: CompleteButFailed, Recoverable: true}},
		{"a tag", Judgement{Verdict: verifier.Fail, State: TerminalFailure, Tags: Tags[:1]}, 1, Judgement{Verdict: verifier.Continue, State: TerminalFailure, Recoverable: true, Tags: Tags[:1]}},
		{"a rationale", Judgement{Verdict: verifier.Fail, State: TerminalFailure, Rationale: "no file"}, 1, Judgement{Verdict: verifier.Continue, State: TerminalFailure, Recoverable: true, Rationale: "no file"}},
		{"nothing that helps", Judgement{Verdict: verifier.Fail, State: TerminalFailure, Recoverable: true}, 1, Judgement{Verdict: verifier.Fail, State: TerminalFailure}},
		{"no follow-up left", Judgement{Verdict: verifier.Fail, State: CompleteButFailed, Rationale: "x"}, 0, Judgement{Verdict: verifier.Fail, State: CompleteButFailed, Rationale: "x"}},
		{"continue", Judgement{Verdict: verifier.Continue, State: InProgress}, 1, Judgement{Verdict: verifier.Continue, State: InProgress, Recoverable: true}},
		{"continue without follow-ups", Judgement{Verdict: verifier.Continue, State: InProgress, Recoverable: true}, 0, Judgement{Verdict: verifier.Continue, State: InProgress}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, c.in.Normalised(c.left)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestAPassNeedsACompletedTurn(t *testing.T) {
	pass := Judgement{Verdict: verifier.Pass, State: CompleteAndPassed, Score: 1}
	for _, c := range []struct {
		name   string
		in     Judgement
		gate   Gate
		left   int
		want   Judgement
		result GateResult
	}{
		{"completed", pass, Complete, 0, pass, Open},
		{"follow-ups left", pass, Interrupted, 1, Judgement{Verdict: verifier.Continue, State: Incomplete, Recoverable: true, Score: 1}, Deferred},
		{"none left", pass, Interrupted, 0, Judgement{Verdict: verifier.Fail, State: Incomplete, Score: 1}, Shut},
		{"no pass", Judgement{Verdict: verifier.Continue, State: InProgress}, Interrupted, 1, Judgement{Verdict: verifier.Continue, State: InProgress}, Open},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, result := c.in.Gated(c.gate, c.left)
			if d := cmp.Diff(c.want, got); d != "" || result != c.result {
				t.Error(result, d)
			}
		})
	}
}

func TestTheHandoffHasNoTextOfTheModel(t *testing.T) {
	j := Judgement{Verdict: verifier.Continue, State: InProgress, Recoverable: true, Score: 0.25, Rationale: "SECRET", Missing: []string{"SECRET"}, Tags: Tags[:1]}
	if got, want := j.Handoff(true), `{"verdict":"continue","attempt_state":"in_progress","recoverable":true,"score":0.25}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := j.Handoff(false); strings.Contains(got, "score") || !json.Valid([]byte(got)) {
		t.Error(got)
	}
}

func TestCompletedTurns(t *testing.T) {
	good := Turn{End: "yielded"}
	cut := Turn{End: "timeout"}
	long := strings.Repeat("字", longText)
	for _, c := range []struct {
		name string
		turn Turn
		step *Step
		p    Policy
		want Gate
	}{
		{"no step", good, nil, Text, Interrupted},
		{"it ended with a stop", good, &Step{Message: "Here it is", Stop: "end_turn"}, Strict, Complete},
		{"the names of stops have any case", good, &Step{Message: "Here it is", Stop: "STOP"}, Strict, Complete},
		{"a bad end", cut, &Step{Message: "Here it is", Stop: "stop"}, Strict, Interrupted},
		{"a bad exit", Turn{End: "yielded", ExitCode: 1}, &Step{Message: "Done.", Stop: "stop"}, Strict, Interrupted},
		{"no words", good, &Step{Stop: "stop"}, Text, Interrupted},
		{"the model wanted a tool", good, &Step{Message: "Done.", Stop: "toolUse"}, Text, Interrupted},
		{"the reply was too long", good, &Step{Message: "Done.", Stop: "max_tokens"}, Text, Interrupted},
		{"the last step calls a tool", good, &Step{Message: "Done.", Calls: 1, Stop: "stop"}, Text, Interrupted},
		{"it says so", good, &Step{Message: "All files are there. Task complete."}, Strict, Complete},
		{"it says so in Chinese", good, &Step{Message: "报告任务完成了"}, Strict, Complete},
		{"the turn has the words", Turn{End: "yielded", Message: "The task is complete!"}, &Step{}, Strict, Complete},
		{"it says something else", good, &Step{Message: "The task is complete soon"}, Strict, Interrupted},
		{"any words", good, &Step{Message: "Looking"}, Text, Complete},
		{"text relaxes", cut, &Step{Message: "Looking"}, Text, Complete},
		{"text does not relax without words", cut, &Step{}, Text, Interrupted},
		{"text does not relax a call", cut, &Step{Message: "x", Calls: 1}, Text, Interrupted},
		{"text does not relax a stop", cut, &Step{Message: "x", Stop: "length"}, Text, Interrupted},
		{"long text relaxes", cut, &Step{Message: long + " 已完成"}, LongText, Complete},
		{"it must be long", cut, &Step{Message: "已完成"}, LongText, Interrupted},
		{"and say that it is complete", cut, &Step{Message: long}, LongText, Interrupted},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Completed(c.turn, c.step, c.p); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestMessages(t *testing.T) {
	for _, c := range []struct {
		name     string
		f        Feedback
		j        Judgement
		task     string
		composed bool
		want     string
	}{
		{"lines", Feedback{Candidate: " - one\n• two\n\tthree\nfour"}, Judgement{}, "", false, "one\ntwo\nthree"},
		{"a single line", Feedback{Candidate: "The table is empty. Please fill it! Thanks"}, Judgement{}, "", false, "The table is empty.\nPlease fill it!\nThanks"},
		{"a completion sentence goes", Feedback{Candidate: "Task is done.\nAdd the date"}, Judgement{}, "", false, "Add the date"},
		{"repeated lines go", Feedback{Candidate: "Add the date\nadd  THE date\nAdd the date, please\nthe\nSort it"}, Judgement{}, "", false, "Add the date\nSort it"},
		{"silent", Feedback{Mode: "silent", Candidate: "x"}, Judgement{State: InProgress}, "buy milk", false, "Please go on with what I asked for."},
		{"nothing left, Chinese", Feedback{Candidate: "完成"}, Judgement{State: Incomplete}, "买牛奶", false, "完成"},
		{"nothing at all, Chinese", Feedback{}, Judgement{State: Incomplete}, "买牛奶", false, "请把剩下的工作做完，做完后告诉我。"},
		{"points are not in a candidate", Feedback{Candidate: "a b", Points: []string{"c"}}, Judgement{Tags: Tags[:1]}, "", false, "a b"},
		{"composed", Feedback{Candidate: "a b", Points: []string{"c"}}, Judgement{Tags: Tags[:1]}, "", true, "a b\nc\nPlease keep to what I asked for."},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, Message(c.f, c.j, c.task, c.composed)); d != "" {
				t.Error(d)
			}
		})
	}
	for _, tag := range Tags {
		if hints[tag].english == "" || hints[tag].chinese == "" {
			t.Errorf("no hint for %s", tag)
		}
	}
}

func TestResults(t *testing.T) {
	round := func(v verifier.Decision, score float64) Round {
		return Round{Verdict: v, Score: score, Completed: true, Gate: Open}
	}
	open := round(verifier.Continue, 0.4)
	never := Round{Verdict: verifier.Continue, Score: 0.95, Gate: Open}
	for _, c := range []struct {
		name string
		l    Loop
		want Result
	}{
		{"the best counts", Loop{Rounds: []Round{round("continue", .70), round("continue", .92), round("continue", .80)}, FollowUpsOver: true}, Result{.92, .80, Passed, true}},
		{"a failure does not pass", Loop{Rounds: []Round{round("continue", .40), round("fail", .60)}}, Result{.60, .60, Failed, false}},
		{"not even with a good score before", Loop{Rounds: []Round{round("continue", .95), round("fail", .60)}}, Result{.95, .60, Failed, false}},
		{"the gate", Loop{Rounds: []Round{{Verdict: verifier.Fail, Score: 1, Gate: Shut}}}, Result{1, 1, Failed, false}},
		{"pass", Loop{Rounds: []Round{round("pass", 1)}}, Result{1, 1, Passed, true}},
		{"pass below the threshold", Loop{Rounds: []Round{round("pass", .5)}}, Result{.5, .5, Passed, false}},
		{"the total", Loop{Rounds: []Round{open}, TotalOver: true, FollowUpsOver: true}, Result{.4, .4, GlobalTimeout, false}},
		{"the total with a good score", Loop{Rounds: []Round{round("continue", .9)}, TotalOver: true}, Result{.9, .9, Passed, true}},
		{"the follow-ups", Loop{Rounds: []Round{open}, FollowUpsOver: true}, Result{.4, .4, BudgetExhausted, false}},
		{"never completed", Loop{Rounds: []Round{never}}, Result{.95, .95, ExecutorIncomplete, false}},
		{"never completed, and cut", Loop{Rounds: []Round{never}, LastCut: true}, Result{.95, .95, ExecutorIncomplete, false}},
		{"cut", Loop{Rounds: []Round{open}, LastCut: true}, Result{.4, .4, GlobalTimeout, false}},
		{"nobody spoke", Loop{Rounds: []Round{open}}, Result{.4, .4, ExecutorIncomplete, false}},
		{"completed only", Loop{Rounds: []Round{never, open}, FollowUpsOver: true, CompletedOnly: true}, Result{.4, .4, BudgetExhausted, false}},
		{"no round", Loop{}, Result{0, 0, ExecutorIncomplete, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.l.Threshold = 0.9
			if d := cmp.Diff(c.want, c.l.Result()); d != "" {
				t.Error(d)
			}
		})
	}
}
