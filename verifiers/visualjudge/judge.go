package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/verifier"
)

// scoreName is the name of the judge's score.
const scoreName = "judge"

// The range of the score.
const (
	lowest  = 1.0
	highest = 5.0
)

// maxCall is how long a model may take for a reply.
const maxCall = 300 * time.Second

// pairsFile is the file that is kept in the attempt, with a line for each pair that
// was looked at.
const pairsFile = "pairs.jsonl"

// The codes of findings: about pairs that were not looked at, about a score that was
// not possible, and about actions after the last picture.
const (
	leftOut = "judge_left_out"
	clamped = "judge_clamped"
	unseen  = "judge_old_picture"
)

// judge is the verifier.
type judge struct{}

// work is one judgement.
type work struct {
	r       *verifier.Request
	c       Config
	s       settings
	changed *chat.Client // says what changed
	scoring *chat.Client // gives the score
	clamped string       // how an impossible score was changed; empty: it is possible
}

// Verify implements verifier.Verifier.
func (judge) Verify(ctx context.Context, r verifier.Request, log func(string)) (v verifier.Verdict, err error) {
	w := work{r: &r}
	if w.c, w.s, err = read(&r); err != nil {
		return v, err
	}
	binary, err := compared(&r)
	if err != nil {
		return v, err
	}
	rec, err := readRecord(&r)
	if err != nil {
		return v, err
	}
	if len(rec.sights) == 0 {
		return v, errors.New("there is no picture in the record of the surface: let the task's observations have one, such as screenshot")
	}
	defer w.close()
	if err = w.dial(); err != nil {
		return v, err
	}
	looked, notes, err := pairs(ctx, &r, &w.c, rec.sights)
	if err != nil {
		return v, err
	}
	log(fmt.Sprintf("%d pictures, %d pairs to look at", len(rec.sights), len(looked)))
	events, unusable, err := w.changes(ctx, looked)
	if err != nil {
		return v, err
	}
	score, reason, err := w.score(ctx, binary, events, &rec)
	if err != nil {
		return v, err
	}
	least, most := lowest, highest
	v = verifier.Verdict{
		Decision: verifier.Scored, Scores: map[string]verifier.Score{scoreName: {Value: score, Min: &least, Max: &most}}, Rationale: reason,
	}
	if notes = append(notes, unusable...); len(notes) > 0 {
		for _, n := range notes {
			log(n)
		}
		v.Findings = []verifier.Finding{{Code: leftOut, Severity: verifier.Note, Text: output.First(strings.Join(notes, "; "), maxSaid)}}
	}
	if rec.unseen > 0 {
		v.Findings = append(v.Findings, verifier.Finding{
			Code: unseen, Severity: verifier.Note,
			Text: fmt.Sprintf("the last picture is of step %d, and %d actions were done after it: the surface records no pictures that the agent does not get", rec.sights[len(rec.sights)-1].Step, rec.unseen),
		})
	}
	if w.clamped != "" {
		v.Findings = append(v.Findings, verifier.Finding{Code: clamped, Severity: verifier.Note, Text: w.clamped})
	}
	return v, nil
}

// compared returns what the comparator before the judge said: 1 or 0.
func compared(r *verifier.Request) (int, error) {
	for _, v := range slices.Backward(r.Earlier) {
		if !ofStage(r, v.Stage) {
			continue
		}
		switch v.Decision {
		case verifier.Pass:
			return 1, nil
		case verifier.Fail:
			return 0, nil
		default: // it decided nothing
		}
	}
	return 0, errors.New("no verifier before this one decided pass or fail: write a comparator before visual-judge in the list of the task's verifiers")
}

func (w *work) dial() (err error) {
	for _, of := range []struct {
		name string
		to   **chat.Client
	}{{modelPairs, &w.changed}, {modelFinal, &w.scoring}} {
		end, ok := w.r.Models[of.name]
		if !ok {
			return fmt.Errorf("visual-judge needs a model %q: write models = { pairs = …, final = … } in its verifier block", of.name)
		}
		if *of.to, err = chat.Dial(end); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) close() {
	for _, c := range []*chat.Client{w.changed, w.scoring} {
		if c != nil {
			c.Close()
		}
	}
}

// ask asks a model once; package chat asks again if the reply does not match.
func ask(ctx context.Context, m *chat.Client, q chat.Request, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, maxCall, fmt.Errorf("%w: it took longer than %s to reply", chat.ErrUnavailable, maxCall))
	defer cancel()
	a, err := m.Ask(ctx, q)
	if err != nil {
		return err
	}
	if err = json.Unmarshal(a.JSON, into); err != nil {
		return fmt.Errorf("%w: %w", chat.ErrBadReply, err)
	}
	return nil
}

// kept is a line of pairsFile.
type kept struct {
	Step    int64    `json:"step"`
	Before  string   `json:"before"` // files in frames/
	After   string   `json:"after"`
	Actions []string `json:"actions"`
	pair
	Reply *change `json:"reply,omitempty"`
	Error string  `json:"error,omitempty"` // why there is no reply
}

// changes asks the first model about each pair. Pairs without a usable reply are
// left out, and named in notes.
func (w *work) changes(ctx context.Context, looked []pair) (events []event, notes []string, err error) {
	var out strings.Builder
	state := ""
	for i := range looked {
		p := &looked[i]
		line := kept{Step: p.after.Step, Before: p.before.Frame.File, After: p.after.Frame.File, Actions: p.after.Actions, pair: *p}
		said, err := w.change(ctx, p, state)
		switch {
		case err == nil:
			state, line.Reply = said.State, &said
			events = append(events, event{Step: p.after.Step, Actions: brief(p.after.Actions), Significance: math.Round(100*p.Significance) / 100, change: said})
		case ctx.Err() == nil && (errors.Is(err, chat.ErrBadReply) || errors.Is(err, chat.ErrTooLong)):
			line.Error = output.First(err.Error(), maxSaid)
			notes = append(notes, fmt.Sprintf("the pair of step %d is left out: %s", p.after.Step, line.Error))
		default:
			return nil, nil, fmt.Errorf("the pair of step %d: %w", p.after.Step, err)
		}
		text, err := json.Marshal(&line)
		if err != nil {
			return nil, nil, err
		}
		out.Write(append(text, '\n'))
	}
	if w.r.Scratch == "" {
		return events, notes, nil
	}
	return events, notes, os.WriteFile(filepath.Join(w.r.Scratch, pairsFile), []byte(out.String()), 0o600)
}

func (w *work) change(ctx context.Context, p *pair, state string) (said change, err error) {
	var images []chat.Image
	for _, of := range []*sight{p.before, p.after} {
		p := chat.Image{MediaType: of.Frame.MediaType, Detail: "low"}
		if p.Data, err = picture(w.r, &of.Frame); err != nil {
			return said, err
		}
		images = append(images, p)
	}
	err = ask(ctx, w.changed, chat.Request{
		System: cmp.Or(w.c.PairsSystem, w.c.words(systemPairs)), Schema: json.RawMessage(w.c.words(schemaPairs)), Effort: w.c.PairsEffort,
		Messages: []chat.Message{{Role: chat.User, Text: w.question(p, state), Images: images}},
	}, &said)
	said.shortened()
	return said, err
}

// score asks the second model. binary is what the comparator said.
func (w *work) score(ctx context.Context, binary int, events []event, rec *record) (score float64, reason string, err error) {
	last := &rec.sights[len(rec.sights)-1]
	data, err := picture(w.r, &last.Frame)
	if err != nil {
		return 0, "", fmt.Errorf("the last picture: %v", err) //nolint:errorlint // it is not an artifact that the agent did not leave
	}
	text, err := w.finalQuestion(binary, events, rec.answer)
	if err != nil {
		return 0, "", err
	}
	var said struct {
		Score  float64 `json:"score"`
		Reason string  `json:"reason"`
	}
	least, most := lowest, highest
	if binary == 0 {
		most--
	}
	err = ask(ctx, w.scoring, chat.Request{
		System: cmp.Or(w.c.FinalSystem, w.c.words(systemFinal)), Schema: schemaFinal(least, most, w.c.Clamp), Effort: w.c.FinalEffort,
		Messages: []chat.Message{{Role: chat.User, Text: text, Images: []chat.Image{{MediaType: last.Frame.MediaType, Data: data, Detail: "high"}}}},
	}, &said)
	if err != nil {
		return 0, "", fmt.Errorf("the score: %w", err)
	}
	if possible := min(max(math.Round(said.Score), least), most); possible != said.Score { // with clamp only
		w.clamped = fmt.Sprintf("the model gave the score %g after the verdict %d, and it counts as %g", said.Score, binary, possible)
		said.Score = possible
	}
	return said.Score, output.First(said.Reason, 2*maxSaid), nil
}
