package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/model/chat/chattest"
	"github.com/berth-eval/berth/plugins/verifier"
)

// page is a picture with some black columns of four pixels on white: n of 320 in
// the grey copy.
func page(n int, grey uint8) []byte {
	p := image.NewGray(image.Rect(0, 0, 1280, 800))
	for y := range 800 {
		for x := range 1280 {
			p.SetGray(x, y, color.Gray{255})
			if x < 4*n {
				p.SetGray(x, y, color.Gray{grey})
			}
		}
	}
	return encoded(p)
}

func encoded(p image.Image) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, p); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// dotted is a page with a dot that is a pixel of the copy.
func dotted(n int) []byte {
	p, err := png.Decode(bytes.NewReader(page(n, 0)))
	if err != nil {
		panic(err)
	}
	if g, ok := p.(*image.Gray); ok {
		for i := range 16 {
			g.SetGray(1000+i%4, 400+i/4, color.Gray{})
		}
	}
	return encoded(p)
}

// script is how a test writes the record of a surface.
type script struct {
	lines  []string
	frames map[string][]byte
}

func (s *script) line(text, frame string) {
	if frame != "" {
		text += fmt.Sprintf(`,"frames":[{"name":"screenshot","media_type":"image/png","file":%q,"digest":"sha256:0","size":1}]`, frame)
	}
	s.lines = append(s.lines, `{"time":"2026-01-01T00:00:00Z","took_ns":1,"stage":"main",`+text+"}")
}

func (s *script) reset(frame string) { s.line(`"kind":"reset"`, frame) }

func (s *script) act(step int, action, arguments, frame string) {
	s.line(fmt.Sprintf(`"kind":"act","step":%d,"action":%q,"arguments":%s`, step, action, arguments), frame)
}

// lay writes a view.
func (s *script) lay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string][]byte{
		"instruction.md":        []byte("Add a node.\n"),
		"attempt/surface.jsonl": []byte(strings.Join(s.lines, "\n") + "\n"),
		"attempt/turns.jsonl":   []byte(`{"kind":"yield","stage":"main","turn":1,"message":"LAST WORDS"}` + "\n"),
	}
	for name, data := range s.frames {
		files["attempt/frames/"+name] = data
	}
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// threePictures is a record of three pictures: the first pair differs in a tenth of the pixels, and the
// second one in too little.
func threePictures() *script {
	s := &script{frames: map[string][]byte{"a.png": page(0, 0), "b.png": page(32, 0), "c.png": dotted(32)}}
	s.reset("a.png")
	s.act(1, "click", `{"bid":"12"}`, "")
	s.act(2, "fill", `{"bid":"13","value":"x"}`, "b.png")
	s.act(3, "noop", `{}`, "c.png")
	return s
}

const aChange = `{"visible_action":"A click.","visible_change_summary":"SUMMARY","visible_change_type":"object_added","task_relevance":"high","progress":"positive","confidence":0.9,"uncertainty_note":"","updated_visible_state_summary":"STATE"}`

// replies are the models of a test: texts for each pair, then for the score.
type replies struct {
	pairs, final []string
	status       int
}

// judged lets the judge work. It returns what the two models were asked.
func judged(t *testing.T, r verifier.Request, a replies) (v verifier.Verdict, pairs, final []chattest.Question, err error) {
	t.Helper()
	serve := func(texts []string) *chattest.Server {
		next := 0
		return chattest.Serve(t, model.DialectOpenAIChat, func(chattest.Question) chattest.Answer {
			if a.status != 0 {
				return chattest.Answer{Status: a.status, Body: `{"error":{"message":"no"}}`}
			}
			next++
			return chattest.Answer{Text: texts[min(next, len(texts))-1]}
		})
	}
	p, f := serve(a.pairs), serve(a.final)
	r.Stage, r.Models = "main", map[string]model.Endpoint{modelPairs: p.Endpoint, modelFinal: f.Endpoint}
	v, err = judge{}.Verify(t.Context(), r, func(string) {})
	return v, p.Questions(), f.Questions(), err
}

func earlier(d verifier.Decision) []verifier.Verdict {
	return []verifier.Verdict{{Verifier: "compare-graph", Stage: "main", Decision: d}}
}

func four(score string) replies {
	return replies{pairs: []string{aChange}, final: []string{`{"score":` + score + `,"reason":"REASON"}`}}
}

func TestTheJudgeLooksAtPairsThatDiffer(t *testing.T) {
	t.Parallel()
	scratch := t.TempDir()
	r := verifier.Request{View: threePictures().lay(t), Scratch: scratch, Earlier: earlier(verifier.Pass), Settings: json.RawMessage(`{"success_condition":"CONDITION","llm_judge_gt":"TRUTH"}`)}
	v, pairs, final, err := judged(t, r, four("4"))
	if err != nil {
		t.Fatal(err)
	}
	least, most := 1.0, 5.0
	want := verifier.Verdict{Decision: verifier.Scored, Scores: map[string]verifier.Score{"judge": {Value: 4, Min: &least, Max: &most}}, Rationale: "REASON"}
	if d := cmp.Diff(want, v); d != "" {
		t.Error(d)
	}
	if len(pairs) != 1 || len(final) != 1 {
		t.Fatalf("%d questions about pairs and %d for the score, want one each", len(pairs), len(final))
	}
	for _, tt := range []struct {
		body  string
		has   []string
		lacks []string
	}{
		{string(pairs[0].Body), []string{"Add a node.", "CONDITION", `click({\"bid\":\"12\"})\nfill(`, `"detail":"low"`, b64(page(0, 0)), b64(page(32, 0))}, []string{"TRUTH", b64(dotted(32))}},
		{
			string(final[0].Body),
			[]string{"Add a node.", "CONDITION", "TRUTH", "SUMMARY", "LAST WORDS", `compared the result:\n\n1\n`, `"detail":"high"`, b64(dotted(32)), `\"step\":2`},
			[]string{b64(page(32, 0))},
		},
	} {
		for _, text := range tt.has {
			if !strings.Contains(tt.body, text) {
				t.Errorf("a question lacks %.60q", text)
			}
		}
		for _, text := range tt.lacks {
			if strings.Contains(tt.body, text) {
				t.Errorf("a question has %.60q", text)
			}
		}
	}
	kept, err := os.ReadFile(filepath.Join(scratch, pairsFile))
	if err != nil || strings.Count(string(kept), "\n") != 1 || !strings.Contains(string(kept), `"significance":10.54`) {
		t.Errorf("%s: %q, %v", pairsFile, kept, err)
	}
}

func b64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// The state that a reply describes is in the question about the next pair.
func TestTheStateRunsOn(t *testing.T) {
	t.Parallel()
	s := threePictures()
	s.frames["d.png"] = page(100, 0)
	s.act(4, "click", `{}`, "d.png")
	_, pairs, _, err := judged(t, verifier.Request{View: s.lay(t), Earlier: earlier(verifier.Pass)}, four("3"))
	if err != nil || len(pairs) != 2 {
		t.Fatal(len(pairs), err)
	}
	if strings.Contains(string(pairs[0].Body), "STATE") || !strings.Contains(string(pairs[1].Body), `as you described it:\n\nSTATE`) {
		t.Error("the state is not passed on")
	}
}

// Both sides of each threshold: 1 % of pixels is 640 of 64,000, which are 3.2 columns
// of the copy; and an RMSE of 0.03 is reached where a share s of the pixels differs by d,
// with √s × d ≥ 0.03.
func TestThresholds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		before, after []byte
		config        string
		pairs         int
	}{
		{"3 of 320 columns by a step: too few", page(0, 254), page(3, 254), ``, 0},
		{"4 of 320 columns by a step", page(0, 254), page(4, 254), ``, 1},
		{"a share that is higher", page(0, 254), page(4, 254), `{"changed":0.02}`, 0},
		{"3 of 320 columns, much: RMSE 0.097", page(0, 0), page(3, 0), ``, 1},
		{"3 of 320 columns by 80: RMSE 0.0304", page(0, 0), page(3, 175), ``, 1},
		{"3 of 320 columns by 78: RMSE 0.0296", page(0, 0), page(3, 177), ``, 0},
		{"an RMSE that is higher", page(0, 0), page(3, 175), `{"rmse":0.031}`, 0},
		{"the same", page(9, 0), page(9, 0), ``, 0},
		{"few pixels", page(40, 0), page(300, 0), `{"rmse":1,"changed":1}`, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &script{frames: map[string][]byte{"a.png": tt.before, "b.png": tt.after}}
			s.reset("a.png")
			s.act(1, "click", `{}`, "b.png")
			_, pairs, _, err := judged(t, verifier.Request{View: s.lay(t), Earlier: earlier(verifier.Pass), Config: json.RawMessage(tt.config)}, four("3"))
			if err != nil || len(pairs) != tt.pairs {
				t.Errorf("%d pairs, %v; want %d", len(pairs), err, tt.pairs)
			}
		})
	}
}

func TestOfTooManyPairsTheOnesThatDifferMostAreLookedAt(t *testing.T) {
	t.Parallel()
	s := &script{frames: map[string][]byte{"a.png": page(0, 0), "b.png": page(10, 0), "c.png": page(200, 0), "d.png": page(220, 0)}}
	s.reset("a.png")
	for i, f := range []string{"b.png", "c.png", "d.png"} {
		s.act(i+1, "click", `{}`, f)
	}
	v, pairs, final, err := judged(t, verifier.Request{View: s.lay(t), Earlier: earlier(verifier.Pass), Config: json.RawMessage(`{"max_pairs":2}`)}, four("3"))
	if err != nil || len(pairs) != 2 {
		t.Fatal(len(pairs), err)
	}
	body := string(final[0].Body)
	if strings.Contains(body, `\"step\":1,`) || strings.Index(body, `\"step\":2,`) > strings.Index(body, `\"step\":3,`) {
		t.Error("these are not the events of steps 2 and 3, in this order")
	}
	if len(v.Findings) != 1 || v.Findings[0].Code != leftOut || !strings.Contains(v.Findings[0].Text, "3 pairs") {
		t.Errorf("findings %+v", v.Findings)
	}
}

func TestNoPairIsAnEmptyListOfEvents(t *testing.T) {
	t.Parallel()
	s := &script{frames: map[string][]byte{"a.png": page(0, 0)}}
	s.reset("a.png")
	s.act(1, "click", `{}`, "a.png")
	v, pairs, final, err := judged(t, verifier.Request{View: s.lay(t), Earlier: earlier(verifier.Fail)}, four("1"))
	if err != nil || v.Scores["judge"].Value != 1 || len(pairs) != 0 || !strings.Contains(string(final[0].Body), `\u003cevents\u003e\n\u003c/events\u003e`) {
		t.Errorf("%+v, %v after %d questions about pairs", v, err, len(pairs))
	}
}

// A second reset is not a change that the agent made.
func TestNoPairGoesAcrossAReset(t *testing.T) {
	t.Parallel()
	s := &script{frames: map[string][]byte{"a.png": page(0, 0), "b.png": page(99, 0)}}
	s.reset("a.png")
	s.reset("b.png")
	if _, pairs, _, err := judged(t, verifier.Request{View: s.lay(t), Earlier: earlier(verifier.Pass)}, four("1")); err != nil || len(pairs) != 0 {
		t.Errorf("%d pairs, %v", len(pairs), err)
	}
}

func TestAPairWithoutAUsableReplyIsLeftOut(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{
		"prose":           "Something was added.",
		"an unknown type": strings.Replace(aChange, "object_added", "explosion", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scratch := t.TempDir()
			a := four("4")
			a.pairs = []string{reply}
			v, pairs, final, err := judged(t, verifier.Request{View: threePictures().lay(t), Scratch: scratch, Earlier: earlier(verifier.Pass)}, a)
			if err != nil || v.Scores["judge"].Value != 4 || len(pairs) != 3 {
				t.Fatalf("%+v, %v after %d questions", v, err, len(pairs))
			}
			if len(v.Findings) != 1 || v.Findings[0].Code != leftOut || v.Findings[0].Severity != verifier.Note || !strings.Contains(v.Findings[0].Text, "step 2") {
				t.Errorf("findings %+v", v.Findings)
			}
			if strings.Contains(string(final[0].Body), "visible_action") {
				t.Error("there is an event of it")
			}
			if kept, err := os.ReadFile(filepath.Join(scratch, pairsFile)); err != nil || !strings.Contains(string(kept), `"error":"`) {
				t.Errorf("%q, %v", kept, err)
			}
		})
	}
}

func TestWhatTheJudgeNeeds(t *testing.T) {
	t.Parallel()
	empty := &script{}
	empty.reset("")
	for name, tt := range map[string]struct {
		r    verifier.Request
		a    replies
		want string
	}{
		"a comparator":         {verifier.Request{View: threePictures().lay(t)}, four("4"), "write a comparator before"},
		"one that decides":     {verifier.Request{View: threePictures().lay(t), Earlier: earlier(verifier.Scored)}, four("4"), "write a comparator before"},
		"pictures":             {verifier.Request{View: empty.lay(t), Earlier: earlier(verifier.Pass)}, four("4"), "there is no picture"},
		"known settings":       {verifier.Request{View: threePictures().lay(t), Earlier: earlier(verifier.Pass), Settings: json.RawMessage(`{"succes_condition":"x"}`)}, four("4"), "succes_condition"},
		"a share":              {verifier.Request{View: threePictures().lay(t), Earlier: earlier(verifier.Pass), Config: json.RawMessage(`{"rmse":3}`)}, four("4"), "above 0 and up to 1"},
		"a model that answers": {verifier.Request{View: threePictures().lay(t), Earlier: earlier(verifier.Pass)}, replies{status: 403}, "the model refuses"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if v, _, _, err := judged(t, tt.r, tt.a); err == nil || v.Decision != "" || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v, %v; want an error with %q", v, err, tt.want)
			}
		})
	}
	r := verifier.Request{View: threePictures().lay(t), Stage: "main", Earlier: earlier(verifier.Pass)}
	if _, err := (judge{}).Verify(t.Context(), r, func(string) {}); err == nil || !strings.Contains(err.Error(), `needs a model "pairs"`) {
		t.Errorf("without models: %v", err)
	}
}

// The pictures of a record may be anything: then nothing is said about them, except
// about the last one, which has to be shown.
func TestHostilePictures(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"no picture":    func(p string) error { return os.WriteFile(p, []byte("<html>"), 0o600) },
		"a link out":    func(p string) error { return os.Symlink("/etc/passwd", p) },
		"a pipe":        func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"a sparse file": func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o600), os.Truncate(p, 1<<40)) },
		"nothing":       func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			view := threePictures().lay(t)
			path := filepath.Join(view, "attempt/frames/b.png")
			if err := errors.Join(os.Remove(path), spoil(path)); err != nil {
				t.Fatal(err)
			}
			v, pairs, _, err := judged(t, verifier.Request{View: view, Earlier: earlier(verifier.Pass)}, four("4"))
			if err != nil || len(pairs) != 0 || len(v.Findings) != 1 || !strings.Contains(v.Findings[0].Text, "after step 2 cannot be compared") {
				t.Errorf("%+v, %v after %d questions", v, err, len(pairs))
			}
		})
	}
	view := threePictures().lay(t)
	if err := os.Remove(filepath.Join(view, "attempt/frames/c.png")); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := judged(t, verifier.Request{View: view, Earlier: earlier(verifier.Pass)}, four("4")); err == nil || errors.Is(err, verifier.ErrArtifactMissing) || !strings.Contains(err.Error(), "the last picture") {
		t.Errorf("the last picture is missing: %v", err)
	}
}

func TestNamesOfPicturesStayInTheirFolder(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../turns.jsonl", "/etc/passwd", "..", "a/../../x", strings.Repeat("x", 5000)} {
		s := threePictures()
		s.act(4, "click", `{}`, name)
		if v, _, _, err := judged(t, verifier.Request{View: s.lay(t), Earlier: earlier(verifier.Pass)}, four("4")); err == nil {
			t.Errorf("%.40s: %+v", name, v)
		}
	}
}

// However many and long the actions of an agent are, the question stays short.
func TestLongActionsAreShortened(t *testing.T) {
	t.Parallel()
	s := &script{frames: map[string][]byte{"a.png": page(0, 0), "b.png": page(100, 0)}}
	s.reset("a.png")
	for i := range 50 {
		s.act(i+1, "fill", `{"value":"`+strings.Repeat("x", 100_000)+`"}`, "")
	}
	s.act(51, "click", `{}`, "b.png")
	_, pairs, final, err := judged(t, verifier.Request{View: s.lay(t), Earlier: earlier(verifier.Pass)}, four("4"))
	if err != nil || len(pairs) != 1 {
		t.Fatal(len(pairs), err)
	}
	pictures := len(b64(page(0, 0))) + len(b64(page(100, 0)))
	if n, m := len(pairs[0].Body)-pictures, len(final[0].Body)-pictures; n > 50<<10 || m > 10<<10 {
		t.Errorf("the questions have %d and %d bytes", n, m)
	}
}

// A message to the user is the answer rather than the last words.
func TestTheAnswerIsWhatTheUserWasTold(t *testing.T) {
	t.Parallel()
	s := threePictures()
	s.act(4, say, `{"text":"TOLD"}`, "")
	_, _, final, err := judged(t, verifier.Request{View: s.lay(t), Earlier: earlier(verifier.Pass)}, four("4"))
	if err != nil || !strings.Contains(string(final[0].Body), `answer:\n\nTOLD`) {
		t.Errorf("%v", err)
	}
}

func FuzzRecord(f *testing.F) {
	for _, l := range threePictures().lines {
		f.Add(l)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := script{lines: []string{text}}
		r := verifier.Request{View: s.lay(t), Stage: "main"}
		rec, err := readRecord(&r)
		if err != nil {
			return
		}
		c := Config{RMSE: 0.03, Changed: 0.01, MaxPairs: 2}
		if _, _, err = pairs(t.Context(), &r, &c, rec.sights); err != nil {
			t.Error(err)
		}
	})
}
