package main

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/verifier"
	"github.com/berth-eval/berth/plugins/verifier/verifiertest"
	"github.com/berth-eval/berth/verifiers/aes/internal/similarity"
)

// capture is one of a page with an element of 100 × 100 (99 and an edge), a second one
// that is priced out in result, and an action.
func capture(x, second, failed string) string {
	element := func(id, left, text string) string {
		return `{"id": ` + id + `, "box": [` + left + `, 0, 99, 99], "displayed": true, "tag": 0, "text": ` + text + `, "html": ` + text + `, "attributes": [3, 4, 5, 6], "style": 0}`
	}
	state := `"strings": ["DIV", "one", "two", "data-filter-by", "text", "data-evalby", "color", "rgb(0, 0, 0)", "other"], "properties": ["color"], "styles": [[7]],
		"elements": [` + element("1", x, "1") + `, ` + element("2", "1000", second) + `]}`
	return `{"version": 1, "states": [{` + state + `, {"action": "press", "failed": "` + failed + `", ` + state + `]}`
}

func verify(t *testing.T, target, result, config string) (verifier.Verdict, string, error) {
	t.Helper()
	return verifyFiles(t, "", map[string]string{dirCaptures + "/" + fileTarget: target, dirCaptures + "/" + fileResult: result}, config)
}

func verifyFiles(t *testing.T, stage string, files map[string]string, config string) (verifier.Verdict, string, error) {
	t.Helper()
	dir, scratch := t.TempDir(), t.TempDir()
	for name, text := range files {
		if text == "" {
			continue
		}
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	p := served()
	conn, stop, err := plugins.Here(p)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	v, err := verifier.NewClient(conn, p.Name, p.Capabilities).Verify(t.Context(), verifier.Request{View: dir, Stage: stage, Scratch: scratch, Config: json.RawMessage(config)}, func(string) {})
	return v, scratch, err
}

func TestContract(t *testing.T) {
	t.Parallel()
	files := func(result string) map[string]string {
		return map[string]string{dirCaptures + "/" + fileTarget: capture("0", "2", ""), dirCaptures + "/" + fileResult: result}
	}
	verifiertest.Run(t, verifiertest.Subject{Plugin: served(), Cases: []verifiertest.Case{
		{Name: "equal", Files: files(capture("0", "2", "")), Want: verifier.Scored, Scores: map[string]float64{"aes": 1, "aes_strict": 1}},
		{Name: "empty", Files: files(`{"version": 1, "states": [{}]}`), Want: verifier.Scored, Scores: map[string]float64{"aes": 0, "aes_strict": 0}},
	}})
}

// Both scores are there, with the details.
func TestScores(t *testing.T) {
	t.Parallel()
	far := capture("0", "8", "") // another text at the same place: the filter costs 1, and GIoU 1 pays it
	target := capture("0", "2", "")
	moved := strings.ReplaceAll(far, "[1000, 0, 99, 99]", "[5000, 0, 99, 99]") // elsewhere, too: priced out
	v, scratch, err := verify(t, target, moved, `{}`)
	if err != nil || v.Decision != verifier.Scored || v.Scores["aes"].Value != 1 || math.Abs(v.Scores["aes_strict"].Value-0.5) > 1e-12 {
		t.Fatalf("%+v, %v", v, err)
	}
	if !strings.Contains(v.Rationale, "priced out") || len(v.Checkpoints) != 2 || v.Checkpoints[1].Name != "action 1: press" {
		t.Errorf("%q, %+v", v.Rationale, v.Checkpoints)
	}
	var kept similarity.Result
	raw, err := os.ReadFile(filepath.Join(scratch, fileDetails))
	if err != nil || json.Unmarshal(raw, &kept) != nil || len(kept.States) != 2 || !kept.States[0].Elements[1].Priced {
		t.Errorf("%s, %v", raw, err)
	}
}

// A task of several stages has captures of each, and each is measured. What is lost
// is scored by its cause: without index.html, no page was written.
func TestStagesAndLosses(t *testing.T) {
	t.Parallel()
	nothing := `{"version": 1, "states": [{}, {}]}`
	files := map[string]string{
		"attempt/captures/iteration-1/target/elements.json": capture("0", "2", ""), "attempt/captures/iteration-1/result/elements.json": nothing,
		"attempt/captures/iteration-2/target/elements.json": capture("0", "2", ""), "attempt/captures/iteration-2/result/elements.json": nothing,
		"attempt/captures/iteration-2/result/index.html": "<p>", "attempt/captures/iteration-3/target/elements.json": capture("0", "2", ""),
		"attempt/captures/iteration-3/result/elements.json": capture("0", "2", ""), "attempt/captures/iteration-3/result/index.html": "<p>",
		"attempt/verdicts.jsonl": `{"verifier":"aes","stage":"iteration-1","scores":{"aes":{"value":0.25}}}` + "\n" + `{"verifier":"reward","stage":"iteration-1","scores":{"outputs":{"value":3}}}` + "\n" +
			`{"verifier":"aes","stage":"iteration-2","scores":{"aes":{"value":0.5}}}` + "\n" + `{"verifier":"aes","stage":"iteration-1","scores":{"aes":{"value":0.125}}}` + "\n",
	}
	if v, _, err := verifyFiles(t, "iteration-3", files, `{"series": true}`); err != nil || v.Scores["aes_1"].Value != 0.125 || v.Scores["aes_2"].Value != 0.5 || v.Scores["aes_3"].Value != 1 || len(v.Scores) != 10 {
		t.Errorf("the series: %+v, %v", v.Scores, err)
	}
	for stage, want := range map[string]map[string]float64{
		"iteration-1": {"aes": 0, "lost_par": 1, "lost_ren": 0}, "iteration-2": {"aes": 0, "lost_par": 0, "lost_ren": 1},
		"iteration-3": {"aes": 1, "lost_par": 0, "lost_ren": 0, "lost_act": 0, "lost_mat": 0, "lost_attr": 0},
	} {
		v, _, err := verifyFiles(t, stage, files, `{}`)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range want {
			if got, ok := v.Scores[name]; !ok || got.Value != value || got.Lower != (name != "aes") {
				t.Errorf("%s: %s is %+v, want %g", stage, name, got, value)
			}
		}
	}
}

// What cannot be judged is an error that says whose fault it is.
func TestWhatCannotBeJudged(t *testing.T) {
	t.Parallel()
	good := capture("0", "2", "")
	for _, tt := range []struct{ name, target, result, config, says string }{
		{"no capture", "", "", "", "missing"},
		{"no result", good, "", "", "missing"},
		{"the target fails", capture("0", "2", "covered"), good, "", "the task is invalid: its own page fails, at action 1, press: covered"},
		{"an empty target", `{"version": 1, "states": [{}]}`, good, "", "the task is invalid: no element"},
		{"another version", good, `{"version": 9, "states": [{}]}`, "", "version 9"},
		{"no JSON", good, `{`, "", "cannot be read"},
		{"a number that is none", good, strings.ReplaceAll(good, "99]", "1e999]"), "", "cannot be read"},
		{"a box without an end", good, strings.ReplaceAll(good, "99]", "1e300]"), "", "has the box"},
		{"a text that is not there", good, strings.ReplaceAll(good, `"html": 1`, `"html": 77`), "", "names what is not there"},
		{"a style that is not there", good, strings.ReplaceAll(good, `[[7]]`, `[[7, 7]]`), "", "does not fit"},
		{"an unknown setting", good, good, `{"strict": true}`, "strict"},
	} {
		if v, _, err := verify(t, tt.target, tt.result, tt.config); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %+v, %v; want %q", tt.name, v, err, tt.says)
		}
	}
}
