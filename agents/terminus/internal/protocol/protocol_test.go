package protocol

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func one(k string) []Command { return []Command{{k, DefaultDuration}} }

type row struct {
	name, in string
	want     []Command
	complete bool
	warnings []string // substrings, in order
	err      string
}

func TestRepliesInJSON(t *testing.T) {
	t.Parallel()
	for _, tt := range []row{
		{
			name: "json", in: `{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "ls\n", "duration": 0.1}, {"keystrokes": "C-c"}], "task_complete": false}`,
			want: []Command{{"ls\n", 100 * time.Millisecond}, {"C-c", time.Second}},
		},
		{name: "no commands", in: `{"analysis": "a", "plan": "p", "commands": []}`},
		{name: "complete without commands", in: `{"analysis": "a", "plan": "p", "task_complete": true}`, complete: true},
		{name: "complete as text", in: `{"analysis": "a", "plan": "p", "commands": [], "task_complete": "Yes"}`, complete: true},
		{name: "complete as a word nobody knows", in: `{"analysis": "a", "plan": "p", "commands": [], "task_complete": "maybe"}`, warnings: []string{"task_complete is"}},
		{name: "text around it", in: "Sure:\n```json\n{\"analysis\": \"a\", \"plan\": \"p\", \"commands\": []}\n```", warnings: []string{"before", "after"}},
		{name: "a small object first", in: `{"x": 1} {"analysis": "a", "plan": "p", "commands": [{"keystrokes": "a\n"}]}`, want: one("a\n"), warnings: []string{"before"}},
		{name: "braces in text first", in: `I use ${HOME} here {"analysis": "a", "plan": "p", "commands": [{"keystrokes": "a\n"}]}`, want: one("a\n"), warnings: []string{"before"}},
		{name: "braces in strings", in: `{"analysis": "}{", "plan": "\"}", "commands": [{"keystrokes": "echo ${A}\n"}]}`, want: one("echo ${A}\n")},
		{name: "not closed", in: `{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "a\n"}`, want: one("a\n"), warnings: []string{"not closed"}},
		{name: "cut in a string", in: `{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "rm -rf /tm`, err: "cannot be read"},
		{name: "new line in a string", in: "{\"analysis\": \"a\nb\", \"plan\": \"p\", \"commands\": [{\"keystrokes\": \"a\n\"}]}", want: one("a\n"), warnings: []string{"control character"}},
		{name: "unknown escape", in: `{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "grep '\d'\n"}]}`, want: one("grep '\\d'\n"), warnings: []string{"backslash"}},
		{name: "comma at the end", in: `{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "a\n",},],}`, want: one("a\n"), warnings: []string{"comma"}},
		{name: "missing thoughts", in: `{"commands": []}`, warnings: []string{`"analysis" is missing`, `"plan" is missing`}},
		{name: "thoughts that are not text", in: `{"analysis": ["a"], "plan": 1, "commands": []}`, warnings: []string{`"analysis" is not text`, `"plan" is not text`}},
		{name: "unknown fields", in: `{"analysis": "a", "plan": "p", "mood": "good", "commands": [{"keystrokes": "a\n", "speed": 1}]}`, want: one("a\n")},
		{
			name: "durations", in: `{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "a\n", "duration": "2"}, {"keystrokes": "b\n", "duration": -1}, {"keystrokes": "c\n", "duration": 600}, {"keystrokes": "d\n", "duration": "soon"}]}`,
			want: []Command{{"a\n", 2 * time.Second}, {"b\n", 0}, {"c\n", time.Minute}, {"d\n", time.Second}}, warnings: []string{"negative", "longer than 60", `"soon"`},
		},
		{
			name: "no new line before the next", in: `{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "cd /tmp"}, {"keystrokes": "ls\n"}]}`,
			want: []Command{{"cd /tmp", time.Second}, {"ls\n", time.Second}}, warnings: []string{"command 1 do not end with a new line"},
		},
		{name: "no object", in: "I am done.", err: "no JSON object"},
		{name: "an object that is not a reply", in: `{"analysis": "a", "plan": "p"}`, err: `"commands" is missing`},
		{name: "commands that are not a list", in: `{"analysis": "a", "plan": "p", "commands": "ls"}`, err: "not a list"},
		{name: "a command that is not an object", in: `{"analysis": "a", "plan": "p", "commands": ["ls"]}`, err: "command 1 is not an object"},
		{name: "a command without keystrokes", in: `{"analysis": "a", "plan": "p", "commands": [{"duration": 1}]}`, err: `no "keystrokes"`},
		{name: "keystrokes that are not text", in: `{"analysis": "a", "plan": "p", "commands": [{"keystrokes": null}]}`, err: "that are text"},
		{name: "bad commands when complete", in: `{"analysis": "a", "plan": "p", "commands": ["ls"], "task_complete": true}`, complete: true, warnings: []string{"ignored"}},
		{name: "empty", in: "", err: "no JSON object"},
		{name: "objects that are empty", in: "{}{}", err: `"commands" is missing`},
		{
			name: "thinking aloud", in: `<think>perhaps {"commands": [{"keystrokes": "rm -rf /\n"}]}</think> {"analysis": "a", "plan": "p", "commands": [{"keystrokes": "a\n"}]}`,
			want: one("a\n"),
		},
		{name: "thoughts in a string", in: `{"analysis": "<think>a</think>", "plan": "p", "commands": []}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
}

func (tt *row) check(t *testing.T) {
	t.Helper()
	got, err := Parse(tt.in)
	if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
		t.Fatalf("got error %v; want %q", err, tt.err)
	}
	if err != nil {
		return
	}
	if !reflect.DeepEqual(got.Commands, tt.want) || got.Complete != tt.complete {
		t.Errorf("got %+v; want %+v, complete %v", got, tt.want, tt.complete)
	}
	warned(t, got.Warnings, tt.warnings)
}

func warned(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got warnings %q; want %q", got, want)
	}
	for i, w := range want {
		if !strings.Contains(got[i], w) {
			t.Errorf("warning %d is %q; want %q in it", i, got[i], w)
		}
	}
}

// A reply with thousands of mistakes does not fill the conversation with as many
// warnings.
func TestWarningsAreFew(t *testing.T) {
	t.Parallel()
	r, err := Parse(`{"analysis": "a", "plan": "p", "commands": [` + strings.TrimSuffix(strings.Repeat(`{"keystrokes": "x\n", "duration": -1},`, 1000), ",") + `]}`)
	if err != nil || len(r.Commands) != 1000 || len(r.Warnings) != maxWarnings+1 || !strings.Contains(r.Warnings[maxWarnings], "more") {
		t.Errorf("%d commands, %d warnings, %v", len(r.Commands), len(r.Warnings), err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"analysis": "a", "commands": [{"keystrokes": "x"`)
	f.Fuzz(func(t *testing.T, in string) {
		r, err := Parse(in)
		for _, c := range r.Commands {
			if err != nil || c.Duration < 0 || c.Duration > MaxDuration {
				t.Errorf("%+v with error %v", c, err)
			}
		}
	})
}
