package rules

import (
	"encoding/json"
	"errors"
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
		{"fail is recoverable only by its own word", reply("fail"), Judgement{Verdict: verifier.Fail, State: InProgress, Score: 0.5, Confidence: High}},
		{"a limit fails", reply("rate_limit"), Judgement{Verdict: verifier.Fail, State: InProgress, Score: 0.5, Confidence: High}},
		{"words in any case", reply(" PASS\n", func(r *Reply) { r.State, r.Confidence = "Complete_And_Passed ", "LOW" }), Judgement{Verdict: verifier.Pass, State: CompleteAndPassed, Score: 0.5, Confidence: Low}},
		{"a state of an earlier version", reply("continue", func(r *Reply) { r.State = "rate_limit" }), Judgement{Verdict: verifier.Continue, State: TerminalFailure, Recoverable: true, Score: 0.5, Confidence: High}},
		{"a bad state follows pass", reply("pass", func(r *Reply) { r.State = "good" }), Judgement{Verdict: verifier.Pass, State: CompleteAndPassed, Score: 0.5, Confidence: High}},
		{"a bad state follows continue", reply("continue", func(r *Reply) { r.State = "" }), Judgement{Verdict: verifier.Continue, State: InProgress, Recoverable: true, Score: 0.5, Confidence: High}},
		{"a bad state follows fail", reply("fail", func(r *Reply) { r.State = "x" }), Judgement{Verdict: verifier.Fail, State: TerminalFailure, Score: 0.5, Confidence: High}},
		{"an unknown confidence", reply("continue", func(r *Reply) { r.Confidence = "certain" }), Judgement{Verdict: verifier.Continue, State: InProgress, Recoverable: true, Score: 0.5, Confidence: Medium}},
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
	for _, verdict := range []string{"maybe\x1b[2J", ""} {
		if _, err := Check(reply(verdict)); !errors.Is(err, verifier.ErrBadReply) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("the verdict %q: %v", verdict, err)
		}
	}
}

// Each state and each tag that there is stays as it is.
func TestTheWordsThatThereAreAreKept(t *testing.T) {
	for _, s := range []State{"in_progress", "incomplete", "complete_but_failed", "complete_and_passed", "terminal_failure"} {
		for _, v := range []string{"pass", "continue", "fail"} {
			if j, err := Check(reply(v, func(r *Reply) { r.State = string(s) })); err != nil || j.State != s {
				t.Errorf("%s with %s: %s, %v", v, s, j.State, err)
			}
		}
	}
	for _, c := range []Confidence{"low", "medium", "high"} {
		if j, err := Check(reply("fail", func(r *Reply) { r.Confidence = string(c) })); err != nil || j.Confidence != c {
			t.Errorf("confidence %s: %s, %v", c, j.Confidence, err)
		}
	}
	all := strings.Fields("follow_public_task keep_query_literal open_ranked_first_result save_visible_evidence save_supporting_screenshot " +
		"use_only_visible_evidence verify_evidence_matches_conclusion check_correct_source_page record_observable_conclusion do_not_claim_completion credential_hygiene")
	if len(all) != len(Tags) {
		t.Errorf("%d tags, want %d", len(Tags), len(all))
	}
	j, err := Check(reply("continue", func(r *Reply) { r.Tags = all }))
	if err != nil || len(j.Tags) != MaxTags {
		t.Fatal(j.Tags, err)
	}
	for i, tag := range j.Tags {
		if string(tag) != all[i] {
			t.Errorf("tag %d is %s, want %s", i, tag, all[i])
		}
	}
}

func TestAScoreOutsideTheScaleIsNoJudgement(t *testing.T) {
	for _, n := range []float64{-1, 1.01, 40, math.Inf(1), math.NaN()} {
		if _, err := Check(reply("continue", func(r *Reply) { r.Score = n })); !errors.Is(err, verifier.ErrBadReply) {
			t.Errorf("%g: %v", n, err)
		}
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
		{"a tag", Judgement{Verdict: verifier.Fail, State: TerminalFailure, Tags: Tags[:1]}, 1, Judgement{Verdict: verifier.Continue, State: CompleteButFailed, Recoverable: true, Tags: Tags[:1]}},
		{"a rationale", Judgement{Verdict: verifier.Fail, State: TerminalFailure, Rationale: "no file"}, 1, Judgement{Verdict: verifier.Continue, State: CompleteButFailed, Recoverable: true, Rationale: "no file"}},
		{"a blank rationale helps nobody", Judgement{Verdict: verifier.Fail, State: Incomplete, Rationale: " \n"}, 1, Judgement{Verdict: verifier.Fail, State: TerminalFailure, Rationale: " \n"}},
		{"nothing that helps", Judgement{Verdict: verifier.Fail, State: TerminalFailure, Recoverable: true}, 1, Judgement{Verdict: verifier.Fail, State: TerminalFailure}},
		{"a state of a failure that goes on", Judgement{Verdict: verifier.Fail, State: Incomplete, Rationale: "x"}, 1, Judgement{Verdict: verifier.Continue, State: Incomplete, Recoverable: true, Rationale: "x"}},
		{"the last failure is final", Judgement{Verdict: verifier.Fail, State: InProgress, Rationale: "x"}, 0, Judgement{Verdict: verifier.Fail, State: TerminalFailure, Rationale: "x"}},
		{"continue is not complete", Judgement{Verdict: verifier.Continue, State: CompleteAndPassed}, 1, Judgement{Verdict: verifier.Continue, State: Incomplete, Recoverable: true}},
		{"continue is not an end", Judgement{Verdict: verifier.Continue, State: TerminalFailure}, 0, Judgement{Verdict: verifier.Continue, State: Incomplete}},
		{"continue may say that it failed", Judgement{Verdict: verifier.Continue, State: CompleteButFailed}, 1, Judgement{Verdict: verifier.Continue, State: CompleteButFailed, Recoverable: true}},
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
		{"a failure", Judgement{Verdict: verifier.Fail, State: TerminalFailure}, Interrupted, 0, Judgement{Verdict: verifier.Fail, State: TerminalFailure}, Open},
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
		{"no step, but the gateway knows the stop", Turn{End: "yielded", Stop: "end_turn"}, nil, Strict, Complete},
		{"no step, and the model wanted a tool", Turn{End: "yielded", Stop: "tool_use", Message: "Done."}, nil, Strict, Interrupted},
		{"it ended with a stop", good, &Step{Message: "Here it is", Stop: "end_turn"}, Strict, Complete},
		{"the names of stops have any case", good, &Step{Message: "Here it is", Stop: "STOP"}, Strict, Complete},
		{"a bad end", cut, &Step{Message: "Here it is", Stop: "stop"}, Strict, Interrupted},
		{"a bad exit", Turn{End: "yielded", ExitCode: 1}, &Step{Message: "Done.", Stop: "stop"}, Strict, Interrupted},
		{"it did not end by itself", Turn{End: "max_steps"}, &Step{Message: "Done.", Stop: "stop"}, Strict, Interrupted},
		{"no words, but a stop", good, &Step{Stop: "stop"}, Strict, Complete},
		{"blank words", Turn{End: "yielded", Message: " \n"}, &Step{Message: "\t"}, Text, Interrupted},
		{"the gateway knows the stop", Turn{End: "yielded", Stop: "STOP"}, &Step{Message: "Here it is"}, Strict, Complete},
		{"the gateway knows that it was cut off", Turn{End: "yielded", Stop: "max_output_tokens"}, &Step{Message: "Done."}, Strict, Interrupted},
		{"the agent knows better", Turn{End: "yielded", Stop: "stop"}, &Step{Message: "Done.", Stop: "length"}, Strict, Interrupted},
		{"a final call", good, &Step{Call: "task_complete", Stop: "tool_use"}, Strict, Complete},
		{"a call that the agent calls final", good, &Step{Call: "bash", Stop: "final_call"}, Strict, Complete},
		{"a final call of a turn that was cut", cut, &Step{Call: "submit"}, Text, Interrupted},
		{"without a model", good, &Step{Call: "terminal", NoModel: true}, Strict, Complete},
		{"without a model, and it failed", Turn{End: "yielded", ExitCode: 1}, &Step{Call: "exec", NoModel: true}, Strict, Interrupted},
		{"auto for another agent", Turn{Agent: "codex", End: "yielded"}, &Step{Message: "Here it is"}, Auto, Interrupted},
		{"auto for openclaw", Turn{Agent: "openclaw", End: "crashed"}, &Step{Message: "Here it is"}, Auto, Complete},
		{"auto for nanobot", Turn{Agent: "nanobot", End: "yielded"}, &Step{Message: "Here it is"}, Auto, Complete},
		{"auto for edict", Turn{Agent: "edict", End: "crashed", ExitCode: 1}, &Step{Message: long}, Auto, Complete},
		{"auto for edict, short", Turn{Agent: "edict", End: "crashed", ExitCode: 1}, &Step{Message: "已完成"}, Auto, Interrupted},
		{"tool_use", good, &Step{Message: "Done.", Stop: "tool_use"}, Strict, Interrupted},
		{"length", good, &Step{Message: "Done.", Stop: "length"}, Strict, Interrupted},
		{"stop", good, &Step{Message: "Here it is", Stop: "stop"}, Strict, Complete},
		{"stop_sequence", good, &Step{Message: "Here it is", Stop: "stop_sequence"}, Strict, Complete},
		{"another reason, and it says so", good, &Step{Message: "Done.", Stop: "refusal"}, Strict, Complete},
		{"another reason", good, &Step{Message: "I cannot", Stop: "refusal"}, Strict, Interrupted},
		{"long text is not a completion text", good, &Step{Message: long}, LongText, Interrupted},
		{"the model wanted a tool", good, &Step{Message: "Done.", Stop: "toolUse"}, Text, Interrupted},
		{"the reply was too long", good, &Step{Message: "Done.", Stop: "max_tokens"}, Text, Interrupted},
		{"the last step calls a tool", good, &Step{Message: "Done.", Call: "bash", Stop: "stop"}, Text, Interrupted},
		{"it says so", good, &Step{Message: "All files are there. Task complete."}, Strict, Complete},
		{"it says so in Chinese", good, &Step{Message: "报告任务完成了"}, Strict, Complete},
		{"the turn has the words", Turn{End: "yielded", Message: "The task is complete!"}, &Step{}, Strict, Complete},
		{"it says something else", good, &Step{Message: "The task is complete soon"}, Strict, Interrupted},
		{"any words", good, &Step{Message: "Looking"}, Text, Complete},
		{"text relaxes", cut, &Step{Message: "Looking"}, Text, Complete},
		{"text does not relax without words", cut, &Step{}, Text, Interrupted},
		{"text does not relax a call", cut, &Step{Message: "x", Call: "bash"}, Text, Interrupted},
		{"text does not relax a stop", cut, &Step{Message: "x", Stop: "length"}, Text, Interrupted},
		{"a bad exit is relaxed, too", Turn{End: "yielded", ExitCode: 1}, &Step{Message: "Looking"}, Text, Complete},
		{"long text does not relax a call", cut, &Step{Message: long + " 已完成", Call: "bash"}, LongText, Interrupted},
		{"long text relaxes whatever the stop", cut, &Step{Message: long, Stop: "length"}, LongText, Complete},
		{"200 characters are long", cut, &Step{Message: long, Stop: "stop"}, LongText, Complete},
		{"199 are not", cut, &Step{Message: strings.Repeat("字", longText-1), Stop: "stop"}, LongText, Interrupted},
		{"long text relaxes", cut, &Step{Message: long}, LongText, Complete},
		{"it must be long", cut, &Step{Message: "已完成"}, LongText, Interrupted},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Completed(c.turn, c.step, c.p); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestTextsThatSayThatTheWorkIsComplete(t *testing.T) {
	for text, want := range map[string]bool{
		"I have finished the request, and more": true, "文件已完成。": true, "已经完成": true, "任务完成": true, "i have finished the request and more": true, "I  finished\tthe request": true,
		"I finished the request": true, "I completed the request.": true, "I have completed the request!": true, "the request is finished": true, "The request is complete": true,
		"The task is complete": true, "Task complete": true, "TASK IS COMPLETE": true, "Task is done;": true, "Done": true, "completed?": true, "Already complete:": true,
		"Appears complete": true, "All required files have been created.": true, "It is written. Done. See you": true, "First\n  done  \nlast": true, "看。done。": true, "！completed！": true,
		"done it": false, "not done": false, "Almost, done": false, "v1.done": true, "": false, "I am completing the request": false,
	} {
		if got := saysComplete(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestMessages(t *testing.T) {
	for _, c := range []struct {
		name, candidate string
		state           State
		task, want      string
	}{
		{"lines", " - one\n• two\n\tthree\nfour", "", "", "one\ntwo\nthree"},
		{"a single line", "The table is empty. Please fill it! Thanks", "", "", "The table is empty.\nPlease fill it!\nThanks"},
		{"a completion sentence goes", "Task is done.\nAdd the date", "", "", "Add the date"},
		{"repeated lines go", "Add the date\nadd  THE date\nAdd the date, please\nthe\nSort it", "", "", "Add the date\nSort it"},
		{"an earlier line holds it", "Please add the date\nADD  the date", "", "", "Please add the date"},
		{"a Chinese line", "缺少日期。 请补上！ 谢谢？ 再见", "", "", "缺少日期。\n请补上！\n谢谢？"},
		{"two lines are not split", "Add the date. Sort it.\nSave it", "", "", "Add the date. Sort it.\nSave it"},
		{"only completion sentences", "- Done.\n• 任务完成！", CompleteButFailed, "buy milk", "Please check the result against what I asked for, and correct what does not match."},
		{"a long text", strings.Repeat("长", MaxCandidate+1), "", "", strings.Repeat("长", MaxCandidate)},
		{"the first character of Chinese", "", InProgress, "\u3400", "请继续完成我的要求。"},
		{"a character before it", "", InProgress, "\u33ff", "Please go on with what I asked for."},
		{"the last one", "", InProgress, "\u9fff", "请继续完成我的要求。"},
		{"a character after it", "", InProgress, "\ua000", "Please go on with what I asked for."},
		{"nothing left, Chinese", "完成", Incomplete, "买牛奶", "完成"},
		{"nothing at all, Chinese", "", Incomplete, "买牛奶", "请把剩下的工作做完，做完后告诉我。"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, Message(c.candidate, c.state, c.task)); d != "" {
				t.Error(d)
			}
		})
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
		{"the threshold is enough", Loop{Rounds: []Round{round("continue", .9)}, FollowUpsOver: true}, Result{.9, .9, Passed, true}},
		{"pass, but an earlier score counts", Loop{Rounds: []Round{round("continue", .95), round("pass", .5)}}, Result{.95, .5, Passed, true}},
		{"never completed, and no message left", Loop{Rounds: []Round{never}, FollowUpsOver: true}, Result{.95, .95, Passed, true}},
		{"deferred", Loop{Rounds: []Round{{Verdict: verifier.Continue, Score: 1, Gate: Deferred}}}, Result{1, 1, ExecutorIncomplete, false}},
		{"completed, then deferred", Loop{Rounds: []Round{open, {Verdict: verifier.Continue, Score: 1, Gate: Deferred}}}, Result{1, 1, ExecutorIncomplete, false}},
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
