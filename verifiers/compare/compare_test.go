package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/verifier"
	"github.com/berth-eval/berth/plugins/verifier/verifiertest"
)

// plugin returns the verifier with that name.
func plugin(t testing.TB, name string) plugins.Plugin {
	t.Helper()
	for _, p := range served() {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no verifier %s", name)
	return plugins.Plugin{}
}

// verify runs a verifier as the host does, through a connection.
func verify(t testing.TB, name string, r verifier.Request) (verifier.Verdict, error) {
	t.Helper()
	p := plugin(t, name)
	conn, stop, err := plugins.Here(p)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	return verifier.NewClient(conn, p.Name, p.Capabilities).Verify(t.Context(), r, func(string) {})
}

// lay writes a view.
func lay(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func yield(message string) string {
	return fmt.Sprintf(`{"kind":"yield","stage":"main","turn":1,"end":"yielded","message":%q}`+"\n", message)
}

func TestContract(t *testing.T) {
	t.Parallel()
	cases, err := verifiertest.LoadCases("testdata/kit")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range served() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			var own []verifiertest.Case
			for _, c := range cases {
				if c.Verifier == p.Name {
					own = append(own, c)
				}
			}
			if len(own) < 2 {
				t.Fatalf("%d cases, want one that passes and one that fails", len(own))
			}
			verifiertest.Run(t, verifiertest.Subject{Plugin: p, Cases: own})
		})
	}
}

// Where the agent's answer is taken from.
func TestAnswers(t *testing.T) {
	t.Parallel()
	settings := json.RawMessage(`{"truth": {"city": "Faro"}}`)
	step := func(role, message, more string) string {
		return fmt.Sprintf(`{"stage":"main","turn":1,"role":%q,"step":{"step_id":1,"source":"agent","message":%q%s}}`+"\n", role, message, more)
	}
	call := func(text string) string {
		return fmt.Sprintf(`,"tool_calls":[{"tool_call_id":"1","function_name":"send_msg_to_user","arguments":{"text":%q}}]`, text)
	}
	act := func(action, text, more string) string {
		return fmt.Sprintf(`{"stage":"main","kind":"act","action":%q,"arguments":{"text":%q}%s}`+"\n", action, text, more)
	}
	right, wrong := `{"city": "Faro"}`, `{"city": "Oslo"}`
	for name, tt := range map[string]struct {
		files map[string]string
		want  verifier.Decision
		why   string
	}{
		"the last message":        {map[string]string{"turns": yield(wrong) + yield("It is\n```json\n"+right+"\n```")}, verifier.Pass, ""},
		"not the first":           {map[string]string{"turns": yield(right) + yield(wrong)}, verifier.Fail, `city is "Oslo"`},
		"of another stage":        {map[string]string{"turns": yield(right) + strings.Replace(yield(wrong), "main", "other", 1)}, verifier.Pass, ""},
		"a call in the message":   {map[string]string{"turns": yield(`send_msg_to_user("{\"city\": \"Faro\"}")`)}, verifier.Pass, ""},
		"the record of actions":   {map[string]string{"surface": act("send_msg_to_user", right, ""), "turns": yield(wrong)}, verifier.Pass, ""},
		"the last action":         {map[string]string{"surface": act("send_msg_to_user", right, "") + act("send_msg_to_user", wrong, "")}, verifier.Fail, "Oslo"},
		"an action that failed":   {map[string]string{"surface": act("send_msg_to_user", right, "") + act("send_msg_to_user", wrong, `,"error":"no"`)}, verifier.Pass, ""},
		"another action":          {map[string]string{"surface": act("keyboard_type", wrong, ""), "turns": yield(right)}, verifier.Pass, ""},
		"it cannot be done":       {map[string]string{"surface": act("send_msg_to_user", wrong, "") + strings.Replace(act("report_infeasible", right, ""), "text", "reason", 1)}, verifier.Pass, ""},
		"a call of a step":        {map[string]string{"steps": step("agent", wrong, call(right)), "turns": yield(wrong)}, verifier.Pass, ""},
		"the message of a step":   {map[string]string{"steps": step("agent", right, "")}, verifier.Pass, ""},
		"a step of the user":      {map[string]string{"steps": step("user", right, "")}, verifier.Fail, "no answer"},
		"the first with JSON":     {map[string]string{"surface": act("send_msg_to_user", "I am done", ""), "turns": yield(right)}, verifier.Pass, ""},
		"prose":                   {map[string]string{"turns": yield("It is Faro.")}, verifier.Fail, "no JSON object in the answer"},
		"nothing":                 {nil, verifier.Fail, "no answer"},
		"lines that are not JSON": {map[string]string{"turns": "{\n" + yield(right) + "[]\n"}, verifier.Pass, ""},
		"too long":                {map[string]string{"turns": yield(right) + yield(`{"city": "Oslo`+strings.Repeat("o", 1<<20)+`"}`)}, verifier.Pass, ""},
	} {
		files := map[string]string{"task.json": "{}"}
		for record, text := range tt.files {
			files["attempt/"+record+".jsonl"] = text
		}
		v, err := verify(t, "compare-fields", verifier.Request{View: lay(t, files), Stage: "main", Settings: settings})
		if err != nil || v.Decision != tt.want || !strings.Contains(v.Rationale, tt.why) {
			t.Errorf("%s: %+v, %v; want %s with %q", name, v, err, tt.want, tt.why)
		}
		if score := v.Scores["reward"]; (score.Value == 1) != (tt.want == verifier.Pass) || *score.Min != 0 || *score.Max != 1 {
			t.Errorf("%s: score %+v", name, score)
		}
	}
}

// What is the task's fault is an error that names the place, and what is the
// agent's is a verdict.
func TestWhoseFaultItIs(t *testing.T) {
	t.Parallel()
	const file = `{"truth": "references/truth.json", "prediction": "attempt/captures/export"}`
	usual := map[string]string{"references/truth.json": `{"a": 1}`, "attempt/captures/export": `{"a": 1}`}
	for name, tt := range map[string]struct {
		settings, config string
		files            map[string]string
		err              string // of an error; empty: a verdict
		why              string
	}{
		"both are there":                     {settings: file, why: "no difference"},
		"truth with a trailing comma":        {settings: file, files: map[string]string{"references/truth.json": `{"a": 1,}`}, err: "references/truth.json: ground truth: it is not JSON"},
		"an answer with a trailing comma":    {settings: file, files: map[string]string{"references/truth.json": `{"answer": "{\"a\": 1,}"}`}, err: "references/truth.json: ground truth: its answer is not JSON"},
		"truth that is not an object":        {settings: file, files: map[string]string{"references/truth.json": `7`}, err: "references/truth.json: ground truth"},
		"inline truth that is not an object": {settings: `{"truth": 7}`, err: "truth in the settings: ground truth"},
		"no truth":                           {settings: `{}`, err: "truth is required"},
		"truth that is not there":            {settings: `{"truth": "references/other.json"}`, err: "references/other.json"},
		"truth from the attempt":             {settings: `{"truth": "attempt/captures/export"}`, err: "none of the attempt"},
		"the same in another way":            {settings: `{"truth": "references/../attempt/captures/export"}`, err: "none of the attempt"},
		"truth outside of the view":          {settings: `{"truth": "../truth.json"}`, err: "none of the attempt"},
		"a prediction of the task's":         {settings: `{"truth": {"a": 1}, "prediction": "references/truth.json"}`, err: "below attempt/"},
		"a prediction above the attempt":     {settings: `{"truth": {"a": 1}, "prediction": "attempt/../references/truth.json"}`, err: "below attempt/"},
		"an unknown setting":                 {settings: `{"truth": {"a": 1}, "tolerance": 1}`, err: `"tolerance" is not known`},
		"a negative tolerance":               {settings: `{"truth": {"a": 1}, "relative_tolerance": -1}`, err: "negative"},
		"a negative one of a field":          {settings: `{"truth": {"a": 1}, "tolerance_fields": {"a": -1}}`, err: "negative"},
		"settings that are not an object":    {settings: `[]`, err: "settings of the task"},
		"config over settings":               {settings: `{"truth": {"a": 2}, "prediction": "attempt/captures/export"}`, config: `{"truth": {"a": 1}}`, why: "no difference"},
		"settings of another verifier":       {settings: `{"command": ["sh"], "rewards": []}`, config: file, why: "no difference"},
		"the same without a truth":           {settings: `{"command": ["sh"]}`, config: `{"prediction": "answer"}`, err: `"command" is not known`},
		"an unknown setting and a config":    {settings: `{"truth": {"a": 1}, "tolerance": 1}`, config: file, err: `"tolerance" is not known`},
		"null":                               {settings: `null`, config: file, why: "no difference"},
		"config without settings":            {config: file, why: "no difference"},
		"a missing prediction":               {settings: `{"truth": {"a": 1}, "prediction": "attempt/captures/other"}`, err: "artifact"},
		"a folder with one file":             {settings: `{"truth": {"a": 1}, "prediction": "attempt/captures"}`, why: "no difference"},
		"a folder with two files":            {settings: `{"truth": {"a": 1}, "prediction": "attempt/captures"}`, files: map[string]string{"attempt/captures/more": "1"}, why: "folder with 2 files"},
		"a prediction that is not JSON":      {settings: file, files: map[string]string{"attempt/captures/export": "<html>"}, why: "no JSON in the prediction"},
		"a prediction that is a list":        {settings: file, files: map[string]string{"attempt/captures/export": "[1]"}, why: "not an object of fields"},
		"a prediction that is too large":     {settings: file, files: map[string]string{"attempt/captures/export": strings.Repeat(" ", 17<<20)}, why: "at most"},
		"a prediction that is too deep":      {settings: file, files: map[string]string{"attempt/captures/export": strings.Repeat("[", 100_000)}, why: "no JSON"},
	} {
		files := map[string]string{}
		maps.Copy(files, usual)
		maps.Copy(files, tt.files)
		r := verifier.Request{View: lay(t, files), Settings: json.RawMessage(tt.settings), Config: json.RawMessage(tt.config)}
		v, err := verify(t, "compare-fields", r)
		switch {
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%s: %+v, %v; want error %q", name, v, err, tt.err)
		case tt.err == "" && (err != nil || !strings.Contains(v.Rationale, tt.why)):
			t.Errorf("%s: %+v, %v; want %q", name, v, err, tt.why)
		}
	}
	_, err := verify(t, "compare-fields", verifier.Request{View: lay(t, usual), Settings: json.RawMessage(`{"truth": "references/no.json", "prediction": "attempt/no"}`)})
	if err == nil || errors.Is(err, verifier.ErrArtifactMissing) {
		t.Errorf("a truth that is not there: %v, want an error that is not a missing artifact", err)
	}
	_, err = verify(t, "compare-fields", verifier.Request{View: lay(t, usual), Settings: json.RawMessage(`{"truth": {"a": 1}, "prediction": "attempt/no"}`)})
	if !errors.Is(err, verifier.ErrArtifactMissing) {
		t.Errorf("a prediction that is not there: %v, want a missing artifact", err)
	}
}

func TestCircuits(t *testing.T) {
	t.Parallel()
	not := `<cir f="1"><L x="0 0 -32 0"/><I x="0 0 64 0"/><M x="64 0 96 0"/></cir>`
	two := `<cir><L x="0 0 -32 0"/><I x="0 0 64 0"/><M x="64 0 96 0"/><M x="0 0 96 0"/></cir>`
	same := `<cir><L x="0 0 -32 0"/><I x="0 0 64 0"/><M x="64 0 96 0"/><M x="64 0 96 9"/></cir>`
	wrap := func(text string) string {
		b, err := json.Marshal(map[string]string{"answer": text})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	quoted := func(text string) string {
		b, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for name, tt := range map[string]struct {
		truth, prediction string
		score             float64
		why, err          string
	}{
		"a capture":                   {truth: wrap(not), prediction: not, score: 1},
		"a truth that is not JSON":    {truth: not, prediction: not, score: 1},
		"a capture as JSON text":      {truth: wrap(not), prediction: quoted(not), score: 1},
		"JSON in JSON text":           {truth: wrap(not), prediction: quoted(wrap(not)), score: 1},
		"an object":                   {truth: wrap(not), prediction: wrap(not), score: 1},
		"under another key":           {truth: wrap(not), prediction: strings.Replace(wrap(not), "answer", "circuit", 1), score: 1},
		"between other text":          {truth: wrap(not), prediction: "Exported:\n" + not + "\n", score: 1},
		"the older text":              {truth: wrap(not), prediction: "$ 1\nL 0 0 1 1\nI 0 0 64 0\nM 64 0 1 1\n", score: 1},
		"one of two outputs":          {truth: wrap(two), prediction: same, score: 0.5, why: "1 of 2 outputs"},
		"a broken one":                {truth: wrap(not), prediction: `<cir><L x="0 0 1 1"/><M x="9 9 9 9"/></cir>`, why: "nothing drives"},
		"none":                        {truth: wrap(not), prediction: `{"a": 1}`, why: "no circuit"},
		"a truth that is broken":      {truth: wrap(`<cir></cir>`), prediction: not, err: "references/truth.json: ground truth: it has no input"},
		"fields within the tolerance": {truth: `{"answer": "{\"volts\": \"5 V\", \"part\": \"NAND\"}"}`, prediction: `{"volts": 5.25, "part": "nand"}`, score: 1},
		"fields above it":             {truth: `{"answer": "{\"volts\": \"5 V\", \"part\": \"NAND\"}"}`, prediction: `{"volts": 5.26, "part": "nand"}`, why: "volts is 5.26"},
		"one of two fields":           {truth: `{"volts": 5, "part": "NAND"}`, prediction: `{"volts": 5, "part": "NOR"}`, why: "part is"},
		"times are texts":             {truth: `{"at": "14:05"}`, prediction: `{"at": "14:06"}`, why: "at is"},
		"neither circuit nor JSON":    {truth: `not a truth`, prediction: not, err: "not JSON"},
	} {
		r := verifier.Request{
			View:     lay(t, map[string]string{"references/truth.json": tt.truth, "attempt/captures/circuit": tt.prediction}),
			Settings: json.RawMessage(`{"truth": "references/truth.json", "prediction": "attempt/captures/circuit"}`),
		}
		v, err := verify(t, "compare-circuit", r)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want %q", name, err, tt.err)
			}
			continue
		}
		if err != nil || v.Scores["reward"].Value != tt.score || (v.Decision == verifier.Pass) != (tt.score == 1) || !strings.Contains(v.Rationale, tt.why) {
			t.Errorf("%s: %+v, %v; want %g, %q", name, v, err, tt.score, tt.why)
		}
	}
	// As an answer, a call with the circuit in it.
	r := verifier.Request{
		View:     lay(t, map[string]string{"attempt/turns.jsonl": yield(fmt.Sprintf("send_msg_to_user(%q)", not))}),
		Settings: json.RawMessage(fmt.Sprintf(`{"truth": %s}`, wrap(not))),
	}
	if v, err := verify(t, "compare-circuit", r); err != nil || v.Decision != verifier.Pass {
		t.Errorf("a circuit in a call: %+v, %v", v, err)
	}
}

// The settings reach the comparators.
func TestSettings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ verifier, truth, prediction, settings string }{
		{"compare-fields", `{"a": 100}`, `{"a": 110}`, `"relative_tolerance": 0.1`},
		{"compare-fields", `{"a": 100}`, `{"a": 110}`, `"tolerance_fields": {"a": 10}`},
		{"compare-fields", `{"a": [{"b": 1}, {"b": "2 ft"}]}`, `{"a": [{"b": 2}, {"b": 1}]}`, `"unordered_object_keys": ["a"]`},
		{"compare-fields", `{"a": "14:05"}`, `{"a": "14:09"}`, `"time_minutes": 4`},
		{"compare-timeline", clip(0, 4000), clip(0, 6000), `"time_ms": 2000`},
		{"compare-scene", box("1"), box("1.5"), `"tolerance": 0.5`},
		{"compare-circuit", `{"a": 100}`, `{"a": 110}`, `"relative_tolerance": 0.1`},
	} {
		files := map[string]string{"references/truth.json": tt.truth, "attempt/captures/export": tt.prediction}
		base := `"truth": "references/truth.json", "prediction": "attempt/captures/export"`
		for settings, want := range map[string]verifier.Decision{base: verifier.Fail, base + ", " + tt.settings: verifier.Pass} {
			v, err := verify(t, tt.verifier, verifier.Request{View: lay(t, files), Settings: json.RawMessage("{" + settings + "}")})
			if err != nil || v.Decision != want {
				t.Errorf("%s with %s: %+v, %v; want %s", tt.verifier, settings, v, err, want)
			}
		}
	}
	// A ground truth may be wrapped for every comparator.
	b, err := json.Marshal(map[string]string{"answer": nodes(1, 2)})
	if err != nil {
		t.Fatal(err)
	}
	r := verifier.Request{
		View:     lay(t, map[string]string{"attempt/captures/export": nodes(1, 2)}),
		Settings: json.RawMessage(`{"prediction": "attempt/captures/export", "truth": ` + string(b) + `}`),
	}
	if v, err := verify(t, "compare-graph", r); err != nil || v.Decision != verifier.Pass {
		t.Errorf("a wrapped workflow: %+v, %v", v, err)
	}
}

func clip(start, long int) string {
	return fmt.Sprintf(`{"operations": [{"type": "EXPORT_COMPLETE", "data": {"timeline": [{"trackIndex": 0, "elements": [{"mediaType": "VIDEO", "mediaName": "a", "startTimeMs": %d, "durationMs": %d}]}]}}]}`, start, long)
}

// nodes are two equal nodes, the first of which is wired to the second.
func nodes(from, to int) string {
	return fmt.Sprintf(`{"nodes": [{"id": "1", "type": "x", "data": {}}, {"id": "2", "type": "x", "data": {}}], "edges": [{"source": "%d", "target": "%d", "sourceHandle": "default"}]}`, from, to)
}

func box(x string) string {
	return fmt.Sprintf(`{"name": "s", "scene": {"objects": [{"type": "box", "position": [%s, 0, 0]}], "settings": {}}}`, x)
}
