package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/model/chat/chattest"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// memory records steps.
type memory struct{ steps []trajectory.Step }

func (m *memory) Step(s trajectory.Step) error { m.steps = append(m.steps, s); return nil }
func (m *memory) Log(string) error             { return nil }
func (m *memory) Artifact(string) error        { return nil }

// speak runs turns of one session with a model and returns their yields.
func speak(t *testing.T, config string, answer func(chattest.Question) chattest.Answer, messages ...string) (yields []agent.Yield, rec *memory, questions []chattest.Question, err error) {
	t.Helper()
	view := t.TempDir()
	if err = os.WriteFile(filepath.Join(view, "instruction.md"), []byte("Find the PRICE."), 0o600); err != nil {
		t.Fatal(err)
	}
	m := chattest.Serve(t, model.DialectOpenAI, answer)
	s, err := persona().Open(t.Context(), agent.Setup{
		Role: agent.RoleUser, View: view, Config: json.RawMessage(config), Models: map[string]model.Endpoint{"default": m.Endpoint},
	})
	if err != nil {
		t.Fatal(err)
	}
	rec = &memory{}
	defer func() { _ = s.Close(t.Context(), "", rec) }()
	for _, text := range messages {
		y, failed := s.Turn(t.Context(), agent.Message{Text: text}, rec)
		if failed != nil {
			return yields, rec, m.Questions(), failed
		}
		yields = append(yields, y)
	}
	return yields, rec, m.Questions(), nil
}

func TestTheUserLooksAndReplies(t *testing.T) {
	t.Parallel()
	yields, rec, questions, err := speak(t, `{"policy":"I am in a HURRY."}`, func(q chattest.Question) chattest.Answer {
		if q.Turns == 0 {
			return chattest.Answer{Calls: []chat.Call{{ID: "1", Name: "read", Arguments: json.RawMessage(`{"file":"instruction.md"}`)}}}
		}
		return chattest.Answer{Text: `{"mode":"shout","tone":"rude","candidate_feedback":"Where is it?","public_feedback_points":["a","b"]}`}
	}, "It answered: done.", "It answered: still done.")
	if err != nil || len(yields) != 2 {
		t.Fatal(yields, err)
	}
	want := `{"mode":"nudge","tone":"neutral","candidate_feedback":"Where is it?","public_feedback_points":["a","b"]}`
	if yields[0].End != agent.Done || yields[0].Message != want || yields[1].Message != want {
		t.Errorf("%+v", yields)
	}
	if len(rec.steps) != 3 || len(rec.steps[0].ToolCalls) != 1 || !strings.Contains(string(questions[1].Body), "Find the PRICE.") {
		t.Errorf("%d steps, the second request is %s", len(rec.steps), questions[1].Body)
	}
	if last := string(questions[2].Body); !strings.Contains(last, "I am in a HURRY.") || !strings.Contains(last, "It answered: done.") || !strings.Contains(last, "still done") {
		t.Errorf("the second turn does not continue the first: %s", last)
	}
}

// An experiment may replace the whole of what the user's model is told first.
func TestThePromptOfTheExperiment(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{`{"prompt":"I am MINE. {{policy}} My task: {{task}}","policy":"In a HURRY, not {{task}}."}`, `"instructions":"I am MINE. In a HURRY, not {{task}}. My task: Find the PRICE."`},
		{`{"prompt":"I am MINE.","policy":"In a HURRY."}`, `"instructions":"I am MINE."`},
		{`{"policy":"In a HURRY."}`, `How I behave:\nIn a HURRY."`},
	} {
		config, want := c[0], c[1]
		_, _, questions, err := speak(t, config, func(chattest.Question) chattest.Answer {
			return chattest.Answer{Text: `{"mode":"silent","tone":"neutral","candidate_feedback":"","public_feedback_points":[]}`}
		}, "It answered: done.")
		if err != nil || !strings.Contains(string(questions[0].Body), want) {
			t.Errorf("%v: %s is not in %s", err, want, questions[0].Body)
		}
	}
}

// A user may end the conversation only if the experiment lets it, and says why.
func TestTheUserEnds(t *testing.T) {
	t.Parallel()
	const stop = `{"stop_word": "###STOP###"}`
	for name, c := range map[string]struct {
		config, reply string
		why           string // empty: it goes on
	}{
		"done":                {stop, `{"mode":"silent","tone":"neutral","candidate_feedback":"Thanks! ###STOP###","public_feedback_points":[]}`, endDone},
		"gives up":            {stop, `{"mode":"give_up","tone":"firm","candidate_feedback":"It does not listen.","public_feedback_points":[]}`, endGaveUp},
		"goes on":             {stop, `{"mode":"nudge","tone":"firm","candidate_feedback":"And?","public_feedback_points":[]}`, ""},
		"may not give up":     {`{}`, `{"mode":"give_up","tone":"firm","candidate_feedback":"No.","public_feedback_points":[]}`, ""},
		"after some messages": {`{"max_messages": 1}`, `{"mode":"nudge","tone":"firm","candidate_feedback":"And?","public_feedback_points":[]}`, endLimit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			yields, _, questions, err := speak(t, c.config, func(chattest.Question) chattest.Answer { return chattest.Answer{Text: c.reply} }, "x", "y")
			if err != nil {
				t.Fatal(err)
			}
			last := yields[len(yields)-1]
			if last.End != agent.Done || last.Reason != c.why || (last.Message == "") != (c.why != "") {
				t.Errorf("%+v, want the end %q", last, c.why)
			}
			if says := strings.Contains(string(questions[0].Body), "###STOP###"); says != strings.Contains(c.config, "STOP") {
				t.Errorf("the stop word is in the prompt: %v", says)
			}
			if c.why == endLimit && len(questions) != 1 {
				t.Errorf("%d requests, want one", len(questions))
			}
		})
	}
}

func TestBadReplies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer chattest.Answer
		end    agent.End
		err    error
	}{
		"prose":               {chattest.Answer{Text: "Please go on."}, agent.Crashed, nil},
		"a member is missing": {chattest.Answer{Text: `{"mode":"nudge"}`}, agent.Crashed, nil},
		"only calls":          {chattest.Answer{Calls: []chat.Call{{ID: "1", Name: "list", Arguments: json.RawMessage(`{}`)}}}, agent.Crashed, nil},
		"no model":            {chattest.Answer{Status: 403, Body: `{"error":{"message":"no"}}`}, "", agent.ErrModel},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			yields, _, _, err := speak(t, `{}`, func(chattest.Question) chattest.Answer { return c.answer }, "x")
			if !errors.Is(err, c.err) || c.err == nil && (err != nil || yields[0].End != c.end || yields[0].Reason == "") {
				t.Errorf("%+v, %v", yields, err)
			}
		})
	}
}

func TestLongRepliesAreCut(t *testing.T) {
	t.Parallel()
	f := feedback{Mode: "silent", Tone: "urgent", Candidate: strings.Repeat("长", 10<<20/3)}
	for range 20 {
		f.Points = append(f.Points, strings.Repeat("p", 1000))
	}
	got := f.checked()
	if len([]rune(got.Candidate)) != maxCandidate || len(got.Points) != maxPoints || len(got.Points[0]) != maxPoint || got.Mode != "silent" || got.Tone != "urgent" {
		t.Errorf("%d characters, %d points", len([]rune(got.Candidate)), len(got.Points))
	}
	if d := cmp.Diff(feedback{Mode: "nudge", Tone: "neutral", Points: []string{}}, feedback{}.checked()); d != "" {
		t.Error(d)
	}
}

func TestItPlaysUsersOnly(t *testing.T) {
	t.Parallel()
	needs, err := persona().Check(t.Context(), agent.CheckRequest{Role: agent.RoleUser})
	if err != nil || needs.Shell || len(needs.Refusals) != 0 {
		t.Errorf("%+v, %v", needs, err)
	}
	if needs, err = persona().Check(t.Context(), agent.CheckRequest{Role: agent.RoleAgent}); err != nil || len(needs.Refusals) != 1 {
		t.Errorf("%+v, %v", needs, err)
	}
}

// The prompt must not tell the model, and by it the assistant, that somebody
// measures the assistant.
func TestThePromptHasNoWordOfAnEvaluation(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"supervisor", "rubric", "score", "verdict", "judge", "benchmark", "evaluat", "simulat", "agent", "test", "task"} {
		if strings.Contains(strings.ToLower(system+schema+ending), word) {
			t.Errorf("it has %q", word)
		}
	}
}
