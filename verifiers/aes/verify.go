package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/verifier"
	"github.com/berth-eval/berth/verifiers/aes/internal/similarity"
)

// Config is the body of a verifier block's config.
type Config struct {
	Series bool `berth:"series" default:"false" doc:"Also gives the scores of the stages so far, as aes_1, aes_2 and so on."`
}

// The captures of a stage, and the file with the details.
const (
	dirCaptures = "attempt/captures"
	fileTarget  = "target/elements.json"
	fileResult  = "result/elements.json"
	filePage    = "result/index.html"
	fileDetails = "aes.json"

	fileVerdicts = "attempt/verdicts.jsonl"
)

// The scores.
const (
	scoreAES    = "aes"
	scoreStrict = "aes_strict"
	scoreLost   = "lost_" // and the cause
)

type aes struct{}

// Verify implements verifier.Verifier.
func (aes) Verify(ctx context.Context, r verifier.Request, log func(string)) (v verifier.Verdict, err error) {
	var c Config
	if err = r.DecodeSettings(&c); err != nil {
		return v, err
	}
	dir := captures(&r)
	target, err := read(&r, path.Join(dir, fileTarget))
	if err != nil {
		return v, err
	}
	result, err := read(&r, path.Join(dir, fileResult))
	if err != nil {
		return v, err
	}
	_, unwritten := os.Lstat(filepath.Join(r.View, filepath.FromSlash(path.Join(dir, filePage))))
	got, err := similarity.Compare(ctx, target, result, unwritten != nil)
	if err != nil {
		return v, err
	}
	if r.Scratch != "" {
		if err = keep(filepath.Join(r.Scratch, fileDetails), got); err != nil {
			log("the details are not kept: " + err.Error())
		}
	}
	v = verifier.Verdict{Decision: verifier.Scored, Rationale: rationale(got), Checkpoints: checkpoints(got)}
	v.Scores = map[string]verifier.Score{scoreAES: verifier.Share(got.AES), scoreStrict: verifier.Share(got.Strict)}
	lost := got.Lost
	for cause, value := range map[string]float64{"par": lost.Par, "ren": lost.Ren, "act": lost.Act, "mat": lost.Mat, "attr": lost.Attr} {
		score := verifier.Share(min(1, value))
		score.Lower = true
		v.Scores[scoreLost+cause] = score
	}
	if c.Series {
		err = series(&r, v.Scores)
	}
	return v, err
}

// series adds the scores of the stages before this one, in their order, and its own.
func series(r *verifier.Request, scores map[string]verifier.Score) error {
	var stages []string
	values := map[string]verifier.Score{}
	err := r.AnyLines(fileVerdicts, func(line []byte) {
		var v verifier.Verdict
		if json.Unmarshal(line, &v) != nil || v.Stage == r.Stage {
			return
		}
		if s, ok := v.Scores[scoreAES]; ok {
			if !slices.Contains(stages, v.Stage) {
				stages = append(stages, v.Stage)
			}
			values[v.Stage] = s
		}
	})
	if err != nil {
		return err
	}
	values[r.Stage] = scores[scoreAES]
	for i, stage := range append(stages, r.Stage) {
		scores[fmt.Sprintf("%s_%d", scoreAES, i+1)] = values[stage]
	}
	return nil
}

// captures returns the folder with the captures of the stage: one of its own if the
// task has several.
func captures(r *verifier.Request) string {
	own := path.Join(dirCaptures, r.Stage)
	if fi, err := os.Lstat(filepath.Join(r.View, filepath.FromSlash(path.Join(own, path.Dir(fileTarget))))); r.Stage != "" && err == nil && fi.IsDir() {
		return own
	}
	return dirCaptures
}

// read reads a capture. One that was not taken is a missing artifact.
func read(r *verifier.Request, name string) (*similarity.Page, error) {
	raw, err := r.ReadFile(name, surface.MaxCapture)
	if err != nil {
		return nil, err
	}
	p, err := similarity.Read(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// keep writes what each element scored.
func keep(file string, r *similarity.Result) error {
	raw, err := json.MarshalIndent(r, "", " ")
	return errors.Join(err, os.WriteFile(file, append(raw, '\n'), 0o600))
}

// checkpoints are the states of the page.
func checkpoints(r *similarity.Result) (all []verifier.Checkpoint) {
	for i, s := range r.States {
		c := verifier.Checkpoint{Name: "load", Passed: s.AES >= 1 || len(s.Elements) == 0, Weight: s.Weight, Note: fmt.Sprintf("%.4f", s.AES)}
		if i > 0 {
			c.Name = fmt.Sprintf("action %d: %s", i, output.First(s.Action, 100))
		}
		switch {
		case s.Failed != "":
			c.Passed, c.Note = false, output.First(s.Failed, 300)
		case len(s.Elements) == 0:
			c.Note = "no element counts"
		}
		all = append(all, c)
	}
	return all
}

// shown is how many elements a rationale names.
const shown = 15

// rationale names the elements that cost most.
func rationale(r *similarity.Result) string {
	type loss struct {
		lost float64
		text string
	}
	var all []loss
	for i, s := range r.States {
		for _, e := range s.Elements {
			l := loss{lost: (1 - e.Score) * e.Weight}
			switch {
			case l.lost <= 0:
				continue
			case s.Failed != "":
				l.text = "the action failed"
			case e.Priced:
				l.text = "priced out: its best partner is too different"
			case e.Result == "":
				l.text = "nothing was found for it"
			default:
				l.text = fmt.Sprintf("%.3f: %s", e.Score, differs(&e))
			}
			l.text = fmt.Sprintf("state %d, %s: %s", i, e.Target, l.text)
			all = append(all, l)
		}
	}
	slices.SortStableFunc(all, func(a, b loss) int { return cmp.Compare(b.lost, a.lost) })
	var b strings.Builder
	for i, l := range all {
		if i == shown {
			fmt.Fprintf(&b, "and %d elements more\n", len(all)-shown)
			break
		}
		b.WriteString(l.text + "\n")
	}
	return b.String()
}

// differs names the parts of an element that differ.
func differs(e *similarity.Pair) string {
	parts := []string{fmt.Sprintf("geometry %.3f", e.Geometry)}
	for _, name := range slices.Sorted(maps.Keys(e.Values)) {
		if v := e.Values[name]; v < 1 {
			parts = append(parts, fmt.Sprintf("%s %.3f", name, v))
		}
	}
	return strings.Join(parts, ", ")
}
