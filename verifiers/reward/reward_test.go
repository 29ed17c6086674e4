package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/verifier"
	"github.com/berth-eval/berth/plugins/verifier/verifiertest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	cases, err := verifiertest.LoadCases("testdata/kit")
	if err != nil {
		t.Fatal(err)
	}
	verifiertest.Run(t, verifiertest.Subject{Plugin: served(), Cases: cases})
}

// judged returns the verdict on a record.
func judged(t *testing.T, surface, steps, settings, conf string) (verifier.Verdict, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "attempt"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"surface": surface, "steps": steps} {
		if text == "-" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "attempt", name+".jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return judge{}.Verify(t.Context(), verifier.Request{View: dir, Stage: "main", Settings: json.RawMessage(settings), Config: json.RawMessage(conf)}, func(string) {})
}

// acts is a record of actions with rewards.
func acts(rewards ...float64) string {
	var b strings.Builder
	b.WriteString(`{"kind":"reset","stage":"main"}` + "\n")
	for i, r := range rewards {
		fmt.Fprintf(&b, `{"kind":"act","stage":"main","step":%d,"action":"a%d","reward":%g}`+"\n", i+1, i, r)
	}
	return b.String()
}

func TestTheScore(t *testing.T) {
	t.Parallel()
	const settings = `{"reduce":"best","bound":10.8,"scale":5,"offset":100}`
	for _, tt := range []struct {
		name, record, settings, config string
		want                           float64
	}{
		{"the vector", acts(-0.1, 10.9), settings, "", 100},
		{"nothing", acts(), settings, "", 46},
		{"one move", acts(-0.1), settings, "", 46},
		{"one move, from the first step on", acts(-0.1), settings, `{"from":1}`, 45.5},
		{"nothing, from the first step on", acts(), settings, `{"from":1}`, 46},
		{"it is not clamped", acts(-0.1, 11.9), settings, "", 105},
		{"the best is kept", acts(-0.1, 10.9, -5), settings, "", 100},
		{"from a later step on", acts(3, -1, -1), `{"reduce":"best","from":2}`, "", 2},
		{"fewer steps than that", acts(3), `{"reduce":"best","from":2}`, "", 3},
		{"sum", acts(-0.1, 10.9, -5), `{}`, "", 5.8},
		{"last", acts(-0.1, 10.9, -5), `{"reduce":"last"}`, "", -5},
		{"mean", acts(1, 2, 6), `{"reduce":"mean"}`, "", 3},
		{"the experiment replaces", acts(1, 2, 6), `{"reduce":"mean"}`, `{"reduce":"sum"}`, 9},
		{"what was refused has no reward", acts(1) + `{"kind":"act","stage":"main","step":2,"action":"x","error":"no"}` + "\n", `{}`, "", 1},
		{"of another stage", acts(1) + `{"kind":"act","stage":"other","step":1,"action":"x","reward":5}` + "\n", `{}`, "", 1},
		{"all stages count", acts(1) + `{"kind":"act","stage":"other","step":1,"action":"x","reward":5}` + "\n", `{"stages":"all"}`, "", 6},
		{"lines that are not JSON", acts(1) + "{\n[]\n", `{}`, "", 1},
	} {
		if v, err := judged(t, tt.record, "-", tt.settings, tt.config); err != nil || v.Scores[scoreName].Value != tt.want || v.Decision != verifier.Scored || len(v.Labels) > 0 {
			t.Errorf("%s: %+v, %v; want %g", tt.name, v, err, tt.want)
		}
	}
}

// A surface without rewards has another verifier for its score: outputs are counted,
// and the label is given.
func TestNoScoreIsMade(t *testing.T) {
	t.Parallel()
	steps := strings.Repeat(`{"stage":"main","role":"agent","step":{"step_id":1,"source":"agent","message":"x","llm_call_count":1}}`+"\n", 3)
	v, err := judged(t, acts(), steps, `{"reduce":"none"}`, "")
	if err != nil || v.Decision != verifier.Scored || len(v.Scores) != 3 || v.Scores[unparsed].Value != 3 || v.Labels[ife] != unparsedWhy {
		t.Errorf("%+v, %v", v, err)
	}
}

// Why the label is given.
const (
	unparsedWhy = "90 % or more of the outputs have no action"
	sameWhy     = "90 % or more of the actions are the same"
)

func TestWhoDoesNotPlayGetsTheLabel(t *testing.T) {
	t.Parallel()
	output := func(n int, call bool) string {
		calls := ""
		if call {
			calls = `,"tool_calls":[{"tool_call_id":"1","function_name":"a","arguments":{}}]`
		}
		return strings.Repeat(`{"stage":"main","role":"agent","step":{"step_id":1,"source":"agent","message":"x","llm_call_count":1`+calls+"}}\n", n)
	}
	act := func(n int, name string) string {
		return strings.Repeat(`{"kind":"act","stage":"main","step":1,"action":"`+name+`","arguments":{ },"reward":-0.1}`+"\n", n)
	}
	for _, tt := range []struct {
		name, surface, steps, config, want string
	}{
		{"nonsense", act(0, ""), output(3, false), "", unparsedWhy},
		{"nine of ten", act(1, "Up"), output(9, false) + output(1, true), "", unparsedWhy},
		{"seventeen of twenty", act(3, "Up") + act(1, "Left"), output(17, false) + output(3, true), "", ""},
		{"always up", act(50, "Up"), output(50, true), "", sameWhy},
		{"nine of ten up", act(45, "Up") + act(5, "Down"), output(50, true), "", sameWhy},
		{"less than that", act(44, "Up") + act(6, "Down"), output(50, true), "", ""},
		{"a short game", act(9, "Up"), output(9, true), "", sameWhy},
		{"two actions", act(2, "Up"), output(2, true), "", sameWhy},
		{"one action", act(1, "Up"), output(1, true), "", ""},
		{"a level that is solved by it", `{"kind":"act","stage":"main","step":1,"action":"Up","reward":11}` + "\n" + act(1, "Up"), output(2, true), `{"reduce":"best","bound":10.9}`, ""},
		{"a level that is not", act(2, "Up"), output(2, true), `{"reduce":"best","bound":10.9}`, sameWhy},
		{"another share", act(3, "Up") + act(1, "Left"), output(4, true), `{"ife_at":0.75}`, "75 % or more of the actions are the same"},
		{"no model", act(1, "Up") + act(2, "Left"), strings.Replace(output(3, false), `"llm_call_count":1`, `"llm_call_count":0`, 3), "", ""},
		{"a step of the user", "", strings.ReplaceAll(output(3, false), `"role":"agent"`, `"role":"user"`), "", ""},
	} {
		v, err := judged(t, tt.surface, tt.steps, `{"labels":{"level":"rebuilt"}}`, tt.config)
		if err != nil || v.Labels[ife] != tt.want || v.Labels["level"] != "rebuilt" {
			t.Errorf("%s: %q, %v; want %q", tt.name, v.Labels, err, tt.want)
		}
	}
}

func TestWhatCannotBeJudgedIsAnError(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, surface, settings, text string
		is                            error
	}{
		{"no record", "-", `{}`, "never opened", verifier.ErrArtifactMissing},
		{"a huge reward", acts(1e300), `{}`, "the surface gave 1e+300", verifier.ErrBadReward},
		{"an unknown setting", acts(), `{"reduse":"sum"}`, "reduce", nil},
		{"an unknown way", acts(), `{"reduce":"median"}`, "median", nil},
		{"a negative number", acts(), `{"from":-1}`, "negative", nil},
		{"a share of nothing", acts(), `{"ife_at":0}`, "up to 1", nil},
		{"a number out of range", acts(), `{"scale":1e300}`, "out of range", nil},
	} {
		_, err := judged(t, tt.surface, "-", tt.settings, "")
		if err == nil || !strings.Contains(err.Error(), tt.text) || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.text)
		}
	}
}
