package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/model/chat/chattest"
	"github.com/berth-eval/berth/plugins/verifier"
)

// lay writes a view.
func lay(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	usual := map[string]string{
		"instruction.md":          "Write the price into price.txt.",
		"references/eval_rule.md": "RUBRIC: the price is 42.",
		"attempt/turns.jsonl":     yield(1, "yielded"),
		"attempt/steps.jsonl":     step(1, "Done.", `"extra":{"stop_reason":"end_turn"}`),
	}
	maps.Copy(usual, files)
	for name, text := range usual {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func yield(turn int, end string) string {
	return fmt.Sprintf(`{"kind":"yield","stage":"main","turn":%d,"end":%q}`+"\n", turn, end)
}

func step(turn int, text, more string) string {
	return fmt.Sprintf(`{"stage":"main","turn":%d,"role":"agent","step":{"step_id":1,"source":"agent","message":%q,%s}}`+"\n", turn, text, more)
}

// judged is a reply of the supervisor's model.
func judged(verdict string, score float64, more string) string {
	return fmt.Sprintf(`{"verdict":%q,"attempt_state":"in_progress","recoverable":true,"score":%g,"confidence":"high","rationale":"RATIONALE","missing_artifacts":[],"guidance_tags":[]%s}`, verdict, score, more)
}

// askOnce lets the supervisor judge a round with a model.
func askOnce(t *testing.T, r verifier.Request, answer func(chattest.Question) chattest.Answer) (verifier.Verdict, *chattest.Server, error) {
	t.Helper()
	s := chattest.Serve(t, model.DialectAnthropic, answer)
	r.Stage, r.Models = "main", map[string]model.Endpoint{"default": s.Endpoint}
	v, err := supervisor{}.Verify(t.Context(), r, func(string) {})
	return v, s, err
}

func TestARoundIsJudged(t *testing.T) {
	t.Parallel()
	r := verifier.Request{View: lay(t, map[string]string{"attempt/artifacts/price.txt": "41\n"}), Round: 1, RoundsLeft: 1}
	v, s, err := askOnce(t, r, func(q chattest.Question) chattest.Answer {
		calls := []chat.Call{
			{ID: "1", Name: "list", Arguments: json.RawMessage(`{"folder":"attempt/artifacts"}`)},
			{ID: "2", Name: "read", Arguments: json.RawMessage(`{"file":"references/eval_rule.md"}`)},
			{ID: "3", Name: "search", Arguments: json.RawMessage(`{"pattern":"^4[0-9]$"}`)},
			{ID: "4", Name: "read", Arguments: json.RawMessage(`{"file":"../../etc/passwd"}`)},
		}
		if q.Turns == 0 {
			return chattest.Answer{Calls: calls}
		}
		for _, want := range []string{`attempt/artifacts/price.txt`, `RUBRIC: the price is 42.`, `attempt/artifacts/price.txt:1: 41`} {
			if !strings.Contains(string(q.Body), want) {
				t.Errorf("the results of the tools lack %q", want)
			}
		}
		if strings.Contains(string(q.Body), "root:") {
			t.Error("a file outside the view was read")
		}
		return chattest.Answer{Text: judged("fail", 0.4, "")}
	})
	if err != nil {
		t.Fatal(err)
	}
	least, most := 0.0, 1.0
	want := verifier.Verdict{
		Decision: verifier.Continue, Scores: map[string]verifier.Score{"score": {Value: 0.4, Min: &least, Max: &most}}, Rationale: "RATIONALE",
		Handoff: `{"verdict":"continue","attempt_state":"in_progress","recoverable":true,"score":0.4}`,
		Labels:  map[string]string{"verdict": "continue", "attempt_state": "in_progress", "confidence": "high", "turn": "complete", "gate": "open"},
	}
	if d := cmp.Diff(want, v); d != "" {
		t.Error(d)
	}
	first := string(s.Questions()[0].Body)
	for _, want := range []string{"Write the price into price.txt.", "references/eval_rule.md", `\"messages_left\":1`, "end_turn"} {
		if !strings.Contains(first, want) {
			t.Errorf("the first message lacks %q:\n%s", want, first)
		}
	}
}

// An experiment may replace the whole of what the supervisor is told first.
func TestThePromptOfTheExperiment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ config, task, want string }{
		"replaced": {
			`{"prompt":"MINE: {{task}} by {{rubric}}. {{instructions}} {x}{{commands}}[{{tags}}]"}`, `{"instructions":"BE FAIR, not {{task}}."}`,
			`"system":"MINE: Write the price into price.txt. by references/eval_rule.md. BE FAIR, not {{task}}. {x}[follow_public_task, keep_query_literal`,
		},
		"nothing of ours":   {`{"prompt":"MINE."}`, `{"instructions":"BE FAIR."}`, `"system":"MINE."`},
		"about commands":    {`{"prompt":"MINE. {{commands}}","tools":"sandbox"}`, `{}`, `"system":"MINE. With the tool run you can`},
		"our own, and more": {`{}`, `{"instructions":"BE FAIR."}`, `An empty list if none fits.\n\nFor this task:\nBE FAIR."`},
	} {
		r := verifier.Request{View: lay(t, nil), Round: 1, Config: json.RawMessage(c.config), Settings: json.RawMessage(c.task)}
		_, s, err := askOnce(t, r, func(chattest.Question) chattest.Answer { return chattest.Answer{Text: judged("fail", 0.4, "")} })
		if err != nil {
			t.Fatal(name, err)
		}
		if body := string(s.Questions()[0].Body); !strings.Contains(body, c.want) {
			t.Errorf("%s: %s is not in %s", name, c.want, body)
		}
	}
}

func TestRepliesThatAreNoJudgement(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replies []string
		status  int
		want    error
		score   float64
	}{
		"prose":                 {replies: []string{"It looks good to me."}, want: verifier.ErrBadReply},
		"half an object":        {replies: []string{`{"verdict": "pass"`}, want: verifier.ErrBadReply},
		"prose, then an object": {replies: []string{"Well.", judged("continue", 0.7, "")}, score: 0.7},
		"40 of 100":             {replies: []string{judged("continue", 40, "")}, want: verifier.ErrBadReply},
		"below the scale":       {replies: []string{judged("continue", -1, "")}, want: verifier.ErrBadReply},
		"4 of 10, then 0.4":     {replies: []string{judged("continue", 4, ""), judged("continue", 0.4, "")}, score: 0.4},
		"a judgement in a text": {replies: []string{"The agent did it: " + judged("continue", 1, "")}, score: 1},
		"a score beyond all":    {replies: []string{strings.Replace(judged("continue", 0.5, ""), `"score":0.5`, `"score":1e999`, 1)}, want: verifier.ErrBadReply},
		"a quoted score":        {replies: []string{strings.Replace(judged("continue", 0.5, ""), `"score":0.5`, `"score":"0.5"`, 1)}, score: 0.5},
		"a score in words":      {replies: []string{strings.Replace(judged("pass", 0.5, ""), `"score":0.5`, `"score":"half"`, 1)}, want: verifier.ErrBadReply},
		"nothing":               {replies: []string{""}, want: verifier.ErrBadReply},
		"something beside":      {replies: []string{judged("continue", 1, `,"note":"x"`)}, score: 1},
		"an unknown verdict":    {replies: []string{judged("accept", 1, "")}, want: errAny},
		"a refusing model":      {status: 403, want: agent.ErrModel},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, _, err := askOnce(t, verifier.Request{View: lay(t, nil), Round: 1, RoundsLeft: 1}, func(q chattest.Question) chattest.Answer {
				if c.status != 0 {
					return chattest.Answer{Status: c.status, Body: `{"error":{"message":"no"}}`}
				}
				return chattest.Answer{Text: c.replies[min(q.Turns, len(c.replies)-1)]}
			})
			switch {
			case c.want == nil && (err != nil || v.Scores["score"].Value != c.score):
				t.Errorf("%v, %v", v, err)
			case c.want != nil && (err == nil || v.Decision != ""):
				t.Errorf("a verdict %+v, error %v", v, err)
			case c.want != nil && !errors.Is(c.want, errAny) && !errors.Is(err, c.want):
				t.Errorf("error %v, want %v", err, c.want)
			}
		})
	}
}

var errAny = errors.New("any error")

// A reply without one of the members is not a judgement, but for empty lists.
func TestEachMemberOfAJudgementIsRequired(t *testing.T) {
	t.Parallel()
	var whole map[string]any
	if err := json.Unmarshal([]byte(judged("pass", 1, "")), &whole); err != nil || len(whole) != 8 {
		t.Fatal(len(whole), err)
	}
	for name, of := range whole {
		if _, list := of.([]any); list {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part := maps.Clone(whole)
			delete(part, name)
			text, err := json.Marshal(part)
			if err != nil {
				t.Fatal(err)
			}
			if v, s, err := askOnce(t, verifier.Request{View: lay(t, nil), Round: 1}, chattest.Script(string(text))); !errors.Is(err, verifier.ErrBadReply) || len(s.Questions()) != 3 {
				t.Errorf("%+v after %d questions, %v", v, len(s.Questions()), err)
			}
		})
	}
}

// slow is a model that replies after a time, and calls a tool in each reply.
type slow struct {
	takes time.Duration
	late  int // replies that never come, before the others
	asked int
}

func (m *slow) Ask(ctx context.Context, _ chat.Request) (chat.Reply, error) {
	m.asked++
	after := m.takes
	if m.asked <= m.late {
		after = 1000 * time.Hour
	}
	select {
	case <-ctx.Done():
		return chat.Reply{}, context.Cause(ctx)
	case <-time.After(after):
		return chat.Reply{Calls: []chat.Call{{ID: "1", Name: "list", Arguments: json.RawMessage(`{}`)}}}, nil
	}
}

func TestAJudgementHasATimeLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		m      slow
		asked  int
		takes  time.Duration
		reason string
		down   bool
	}{
		{"no reply comes", slow{late: 99}, 3, 15 * time.Minute, "longer than", true},
		{"the third try", slow{takes: time.Second, late: 2}, 3 + 60 + 1, 10*time.Minute + 62*time.Second, "calls tools and does not judge", false},
		{"many replies", slow{takes: 110 * time.Second}, 9, 15 * time.Minute, "longer than 15m0s", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			view := lay(t, nil)
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				r := verifier.Request{View: view, Stage: "main"}
				_, err := judge(t.Context(), &c.m, &r, &Config{}, func(string) {})
				if err == nil || !strings.Contains(err.Error(), c.reason) || c.m.asked != c.asked || time.Since(begin) != c.takes || errors.Is(err, agent.ErrModel) != c.down {
					t.Errorf("%d asked in %s: %v; want %d in %s", c.m.asked, time.Since(begin), err, c.asked, c.takes)
				}
			})
		})
	}
}

// A rubric of any size is a file for the model's tools, and a long task is
// shortened.
func TestALargeRubricAndALongTask(t *testing.T) {
	t.Parallel()
	view := lay(t, map[string]string{"references/eval_rule.md": strings.Repeat("RUBRIC line\n", 5<<20/12), "instruction.md": strings.Repeat("价", 400<<10)})
	v, s, err := askOnce(t, verifier.Request{View: view, Round: 1, RoundsLeft: 1}, func(q chattest.Question) chattest.Answer {
		if q.Turns == 0 {
			return chattest.Answer{Calls: []chat.Call{{ID: "1", Name: "read", Arguments: json.RawMessage(`{"file":"references/eval_rule.md"}`)}}}
		}
		return chattest.Answer{Text: judged("continue", 0.4, "")}
	})
	if err != nil || v.Decision != verifier.Continue {
		t.Fatal(v, err)
	}
	first, second := len(s.Questions()[0].Body), len(s.Questions()[1].Body)
	if first > maxTask+32<<10 || first < maxTask || second-first > 80<<10 || !strings.Contains(string(s.Questions()[0].Body), "rest is in the file instruction.md") {
		t.Errorf("requests of %d and %d bytes", first, second)
	}
	got, err := supervisor{}.Rewrite(t.Context(), verifier.Request{View: view, Stage: "main"}, verifier.Verdict{Labels: map[string]string{"gate": "open"}}, `{"mode":"silent"}`)
	if err != nil || got != "请继续完成我的要求。" {
		t.Errorf("%q, %v", got, err)
	}
}

// A task without a user has one judgement, after which nothing goes on.
func TestAJudgementAtTheEnd(t *testing.T) {
	t.Parallel()
	for round, want := range []verifier.Decision{verifier.Fail, verifier.Continue} {
		v, _, err := askOnce(t, verifier.Request{View: lay(t, nil), Round: round, RoundsLeft: round}, chattest.Script(judged("continue", 0.4, "")))
		if err != nil || v.Decision != want {
			t.Errorf("round %d: %s, %v; want %s", round, v.Decision, err, want)
		}
	}
}

func TestASupervisorThatOnlyCallsTools(t *testing.T) {
	t.Parallel()
	_, s, err := askOnce(t, verifier.Request{View: lay(t, nil)}, func(q chattest.Question) chattest.Answer {
		return chattest.Answer{Calls: []chat.Call{{ID: fmt.Sprint(q.Turns), Name: "list", Arguments: json.RawMessage(`{}`)}}}
	})
	if !errors.Is(err, verifier.ErrBadReply) || len(s.Questions()) != maxCalls+2 {
		t.Errorf("%d questions, %v", len(s.Questions()), err)
	}
}

func TestAMissingRubricIsNamed(t *testing.T) {
	t.Parallel()
	dir := lay(t, nil)
	if err := os.Remove(filepath.Join(dir, "references/eval_rule.md")); err != nil {
		t.Fatal(err)
	}
	_, _, err := askOnce(t, verifier.Request{View: dir}, chattest.Script(judged("pass", 1, "")))
	if err == nil || !strings.Contains(err.Error(), "references/eval_rule.md") || errors.Is(err, verifier.ErrArtifactMissing) {
		t.Errorf("%v: it must name the file, and blame no agent", err)
	}
}

func TestLongStepsAreShortened(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for i := range 1000 {
		all.WriteString(step(i+1, fmt.Sprintf("step %d %s", i, strings.Repeat("x", 200)), `"extra":{}`))
	}
	r := verifier.Request{View: lay(t, map[string]string{"attempt/steps.jsonl": all.String()}), Stage: "main"}
	got, err := steps(&r)
	if err != nil || len(got) > 2*someSteps+200 || len(got) < 2*someSteps-1000 {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	lines := strings.Split(strings.TrimSpace(got), "\n")
	left := 0
	for _, l := range lines {
		if json.Valid([]byte(l)) {
			continue
		}
		if left != 0 {
			t.Errorf("two lines that are not steps")
		}
		if _, err = fmt.Sscanf(l, "[%d lines", &left); err != nil {
			t.Errorf("%q: %v", l, err)
		}
	}
	if left+len(lines)-1 != 1000 || !strings.Contains(lines[0], "step 0 ") || !strings.Contains(lines[len(lines)-1], "step 999 ") {
		t.Errorf("%d left out, %d lines", left, len(lines))
	}
	for size, whole := range map[int]bool{maxSteps: true, maxSteps + 1: false} {
		rest := size - len(step(1, "", `"extra":{}`))*2
		two := step(1, strings.Repeat("x", rest/2), `"extra":{}`) + step(2, strings.Repeat("y", rest-rest/2), `"extra":{}`)
		exact := verifier.Request{View: lay(t, map[string]string{"attempt/steps.jsonl": two}), Stage: "main"}
		if got, err = steps(&exact); err != nil || len(two) != size || (got == two) != whole {
			t.Errorf("%d bytes: %d, %v", len(two), len(got), err)
		}
	}
	short := verifier.Request{View: lay(t, nil), Stage: "main"}
	if got, err = steps(&short); err != nil || strings.Contains(got, "left out") {
		t.Error(got, err)
	}
}

func TestMessagesToTheAgent(t *testing.T) {
	t.Parallel()
	view := lay(t, nil)
	verdict := func(labels map[string]string) verifier.Verdict {
		return verifier.Verdict{Decision: verifier.Continue, Labels: labels}
	}
	open := map[string]string{"gate": "open", "attempt_state": "in_progress", "follow_public_task": "yes"}
	deferred := map[string]string{"gate": "deferred", "attempt_state": "incomplete"}
	for name, c := range map[string]struct {
		settings, candidate string
		labels              map[string]string
		want                string
	}{
		"feedback":   {`{}`, `{"mode":"instruction","tone":"firm","candidate_feedback":"The price is missing.","public_feedback_points":["Look again"]}`, open, "The price is missing."},
		"nothing":    {`{}`, "", open, "Please go on with what I asked for."},
		"silent":     {`{}`, `{"mode":"silent","tone":"neutral","candidate_feedback":"","public_feedback_points":[]}`, open, "Please go on with what I asked for."},
		"a text":     {`{}`, `{"mode":"silent","tone":"neutral","candidate_feedback":"The price is missing.","public_feedback_points":[]}`, open, "The price is missing."},
		"prose":      {`{}`, "Where is the price?", open, "Where is the price?"},
		"ten MB":     {`{}`, strings.Repeat("a b ", 3<<20), open, strings.TrimSpace(strings.Repeat("a b ", 300))},
		"with nudge": {`{"deferred":"nudge"}`, `{"candidate_feedback":"x"}`, deferred, "Please finish the remaining work, and tell me when it is finished."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := verifier.Request{View: view, Stage: "main", Settings: json.RawMessage(c.settings)}
			got, err := supervisor{}.Rewrite(t.Context(), r, verdict(c.labels), c.candidate)
			if err != nil || got != c.want {
				t.Errorf("%.200q, %v", got, err)
			}
		})
	}
}

func TestTheResultOfALoop(t *testing.T) {
	t.Parallel()
	round := func(n int, d verifier.Decision, score float64, turn string) verifier.Verdict {
		return verifier.Verdict{Stage: "main", Round: n, Decision: d, Scores: map[string]verifier.Score{"score": {Value: score}}, Labels: map[string]string{"gate": "open", "turn": turn, "verdict": string(d)}}
	}
	deferred := round(1, "continue", 1, "incomplete")
	deferred.Decision, deferred.Labels["gate"] = verifier.Fail, "deferred" // the loop ended without asking the user
	other := verifier.Verdict{Stage: "main", Decision: verifier.Pass, Scores: map[string]verifier.Score{"score": {Value: 1}}}
	good := []verifier.Verdict{other, round(1, "continue", .70, "complete"), round(2, "continue", .92, "complete"), round(3, "continue", .80, "complete")}
	for name, c := range map[string]struct {
		settings, turns string
		earlier         []verifier.Verdict
		decision        verifier.Decision
		status          string
		final           float64
	}{
		"no message left": {`{"threshold":0.9}`, yield(3, "yielded") + `{"kind":"over","stage":"main","over":"follow_ups"}` + "\n", good, verifier.Pass, "pass", .92},
		"a failure":       {`{"threshold":0.9}`, yield(2, "yielded"), []verifier.Verdict{round(1, "continue", .40, "complete"), round(2, "fail", .60, "complete")}, verifier.Fail, "fail", .60},
		"the total time":  {`{"threshold":0.9}`, yield(1, "timeout") + `{"kind":"over","stage":"main","over":"total"}` + "\n", []verifier.Verdict{round(1, "continue", .40, "incomplete")}, verifier.Fail, "global_timeout", .40},
		"another stage":   {`{"threshold":0.9}`, `{"kind":"over","stage":"other","over":"total"}` + "\n", []verifier.Verdict{round(1, "continue", .40, "complete")}, verifier.Fail, "executor_incomplete", .40},
		"deferred":        {`{"threshold":0.9}`, yield(1, "yielded"), []verifier.Verdict{deferred}, verifier.Fail, "executor_incomplete", 1},
		"cut":             {`{"threshold":0.9}`, yield(1, "timeout"), []verifier.Verdict{round(1, "continue", .40, "complete")}, verifier.Fail, "global_timeout", .40},
		"completed only":  {`{"threshold":0.9,"completed_only":true}`, yield(1, "yielded"), []verifier.Verdict{round(1, "continue", .95, "incomplete")}, verifier.Fail, "executor_incomplete", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := verifier.Request{View: lay(t, map[string]string{"attempt/turns.jsonl": c.turns, "attempt/verdicts.jsonl": lines(t, c.earlier)}), Stage: "main", Settings: json.RawMessage(c.settings)}
			v, err := loopResult{}.Verify(t.Context(), r, nil)
			if err != nil || v.Decision != c.decision || v.Labels["status"] != c.status || v.Scores["final_score"].Value != c.final {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
	if _, err := (loopResult{}).Verify(t.Context(), verifier.Request{View: lay(t, map[string]string{"attempt/verdicts.jsonl": lines(t, good[:1])}), Stage: "main"}, nil); err == nil {
		t.Error("a result without a judgement")
	}
}

// lines returns verdicts as a record has them.
func lines(t *testing.T, all []verifier.Verdict) string {
	t.Helper()
	var b strings.Builder
	for _, v := range all {
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	return b.String()
}

func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{`{"gate":"loose"}`, `{"unknown":1}`, `[]`} {
		if _, err := settingsOf(&verifier.Request{Settings: json.RawMessage(raw)}); err == nil {
			t.Errorf("%s: no error", raw)
		}
	}
	s, err := settingsOf(&verifier.Request{Settings: json.RawMessage(`{"gate":"text","handoff_score":true}`), Config: json.RawMessage(`{"handoff_score":false}`)})
	if err != nil || s.Gate != "text" || s.HandoffScore {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err = (loopResult{}).Verify(t.Context(), verifier.Request{Settings: json.RawMessage(`{"threshold":2}`)}, nil); err == nil || !strings.Contains(err.Error(), "threshold") {
		t.Error("a threshold of 2")
	}
}

// The supervisor is told of the variables that the agent had, if its view has them,
// whatever prompt it has.
func TestTheSupervisorIsToldOfPrivateVariables(t *testing.T) {
	t.Parallel()
	for _, files := range []map[string]string{nil, {"privacy/env.env": "MAIL=a@b\n"}} {
		r := verifier.Request{View: lay(t, files), Round: 1, Config: json.RawMessage(`{"prompt": "Judge."}`)}
		_, s, err := askOnce(t, r, chattest.Script(judged("pass", 1, "")))
		if told := strings.Contains(string(s.Questions()[0].Body), "The file privacy/env.env has the variables"); err != nil || told != (files != nil) {
			t.Errorf("%v: told of them: %v, %v", files, told, err)
		}
	}
}
