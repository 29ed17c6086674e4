package gauntlet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
)

// maxTruth is what comparators read of a ground truth, in bytes.
const maxTruth = 16 << 20

// truth is what a result is compared with, and how.
type truth struct {
	inline   json.RawMessage // an object or a list; nil: it is in file
	file     string
	settings map[string]json.RawMessage // of the comparator
	answer   json.RawMessage            // what the agent has to say besides; nil: nothing
	said     bool                       // the agent's answer is compared, and no capture
}

// truth reads the ground truth of the entry, and its eval_config.
func (b *builder) truth() (t truth) {
	t.settings = map[string]json.RawMessage{}
	gt := b.entry.Below("gt")
	switch {
	case !gt.Exists() && b.entry.Has("gt") && task.Broken(b.Problems):
	case gt.Get("answer") != nil:
		t.inline = b.inline(gt)
		t.said = b.app.ids == "circuit" && !drawn(t.inline)
	default:
		t.file = b.asset()
	}
	if text := b.free(gt, "llm_judge_gt"); b.prompt.judge == "" {
		b.prompt.judge = text
	}
	gt.Done()
	if b.app.tolerances {
		b.tolerance(&t)
	}
	b.evaluation(&t)
	return t
}

// drawn reports whether a ground truth is a circuit, and not fields that the agent
// measured and says.
func drawn(truth json.RawMessage) bool {
	var o map[string]json.RawMessage
	var text string
	return json.Unmarshal(truth, &o) == nil && len(o) == 1 && json.Unmarshal(o["answer"], &text) == nil && !strings.HasPrefix(strings.TrimSpace(text), "{")
}

// inline returns the ground truth that stands in the list.
func (b *builder) inline(gt *document.Table) json.RawMessage {
	e := document.Entry{Path: gt.At("answer"), Value: gt.Get("answer")}
	var text string
	switch v := e.Value.(type) {
	case map[string]any, []any:
		return b.JSON(e)
	case string:
		text = v
	default:
		gt.Bad("answer", "Wrong type", "%s must be a JSON text, got %s.", e.Path, b.Show(v))
		return nil
	}
	if b.app.ids == "circuit" && strings.HasPrefix(strings.TrimSpace(text), "<") {
		return object(map[string]any{"answer": text})
	}
	if wrong := checkJSON([]byte(text)); wrong != nil {
		at := b.Position(e.Path)
		p := task.Problem{File: b.File, Line: at.Line, Column: at.Column, Key: e.Path, Severity: task.Error, Summary: "Ground truth is not JSON", Detail: wrong.text}
		if b.Block(e.Path) {
			p.Line, p.Column = p.Line+wrong.line, 0
		}
		text = withoutCommas(text)
		if checkJSON([]byte(text)) == nil { // as in tc_frad_018 of the published lists
			p.Severity, p.Summary = task.Warning, "Ground truth has a comma too many"
			p.Detail = "It is read without the comma before the closing bracket. The benchmark's own program cannot read it, and passes no answer."
		}
		if b.Problems = append(b.Problems, p); p.Severity == task.Error {
			return nil
		}
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(text)); err != nil {
		return nil // it was checked
	}
	return compact.Bytes()
}

// asset returns the file of the ground truth.
func (b *builder) asset() string {
	if b.app.assets == "" {
		b.entry.Bad("gt", "Ground truth is missing", "Write it under gt.answer, as a JSON text.")
		return ""
	}
	name := b.item.id
	if b.app.byNumber {
		name = fmt.Sprintf("task%d", b.number())
	}
	file := path.Join(b.app.assets, name+".json")
	data, err := b.text(file, maxTruth)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b.entry.Bad("gt", "Ground truth is missing", "There is no gt.answer, and no file %s in the dataset.", file)
		return ""
	case err != nil:
		b.entry.Bad("gt", "Ground truth cannot be read", "%s: %s.", file, err)
		return ""
	}
	if wrong := checkJSON(data); wrong != nil {
		b.Problems = append(b.Problems, task.Problem{
			File: file, Line: wrong.line, Column: wrong.column, Severity: task.Error, Summary: "Ground truth is not JSON", Detail: wrong.text,
		})
	}
	b.hashed = append(b.hashed, string(data))
	return file
}

// withoutCommas returns a JSON text without commas before closing brackets.
func withoutCommas(text string) string {
	var b strings.Builder
	inside := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '"' {
			inside = !inside
		}
		if inside && c == '\\' && i+1 < len(text) {
			b.WriteByte(c)
			i++
			c = text[i]
		} else if rest := strings.TrimLeft(text[i+1:], " \t\r\n"); !inside && c == ',' && (strings.HasPrefix(rest, "}") || strings.HasPrefix(rest, "]")) {
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// number returns the number in the id.
func (b *builder) number() int {
	n, err := strconv.Atoi(idForm.FindStringSubmatch(b.item.id)[2])
	if err != nil {
		panic(err) // at most nine digits
	}
	return n
}

// fault is what is wrong in a JSON text.
type fault struct {
	line, column int // from 1; 0: unknown
	text         string
}

// checkJSON says why a text is not a JSON object or list; nil: it is one. The same
// holds for the text of an object {"answer": "{…}"}.
func checkJSON(text []byte) *fault {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	if err == nil && len(bytes.TrimSpace(text[d.InputOffset():])) > 0 {
		return place(text, int(d.InputOffset())+1, "Something follows the first value.")
	}
	if err != nil {
		at := len(text)
		if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = int(wrong.Offset)
		}
		return place(text, at, strings.TrimSuffix(strings.ToUpper(err.Error()[:1])+err.Error()[1:], ".")+".")
	}
	switch v := v.(type) {
	case map[string]any:
		inner, is := v["answer"].(string)
		if begins := strings.TrimSpace(inner); is && len(v) == 1 && (strings.HasPrefix(begins, "{") || strings.HasPrefix(begins, "[")) {
			if wrong := checkJSON([]byte(inner)); wrong != nil {
				return &fault{line: 1, text: "The text under its key answer: " + wrong.text}
			}
		}
		return nil
	case []any:
		return nil
	}
	return &fault{line: 1, column: 1, text: "It must be an object or a list."}
}

// place returns a fault with the line and the column of an offset.
func place(text []byte, offset int, what string) *fault {
	before := text[:max(0, min(offset-1, len(text)))]
	return &fault{
		line: 1 + bytes.Count(before, []byte("\n")), column: len(before) - bytes.LastIndexByte(before, '\n'), text: what,
	}
}

// tolerance sets that of the task, if there is one beside the ground truths.
func (b *builder) tolerance(t *truth) {
	file := path.Join(b.app.assets, tolerancesFile)
	data, err := b.text(file, maxList)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	bad := func(line, column int, summary, detail string) {
		b.Problems = append(b.Problems, task.Problem{File: file, Line: line, Column: column, Severity: task.Error, Summary: summary, Detail: detail})
	}
	if err != nil {
		bad(0, 0, "Tolerances cannot be read", err.Error()+".")
		return
	}
	if wrong := checkJSON(data); wrong != nil {
		bad(wrong.line, wrong.column, "Tolerances are not JSON", wrong.text)
		return
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(data, &all) != nil {
		bad(1, 1, "Tolerances are not an object", "Write the numbers of tasks with their tolerances, such as {\"7\": 0.3}.")
		return
	}
	for key, raw := range all {
		n, err := strconv.Atoi(key)
		if err != nil {
			bad(0, 0, "Not the number of a task", fmt.Sprintf("%.100q: write the numbers of tasks with their tolerances, such as {\"7\": 0.3}.", key))
			continue
		}
		if n != b.number() {
			continue
		}
		var value float64
		if json.Unmarshal(raw, &value) != nil || value < 0 || math.IsInf(value, 0) {
			bad(0, 0, "Not a tolerance", fmt.Sprintf("That of task %d is %.100s: write 0 or more.", n, raw))
			continue
		}
		if t.settings["tolerance"] != nil {
			bad(0, 0, "Task is there twice", fmt.Sprintf("There are two tolerances of task %d.", n))
		}
		t.settings["tolerance"] = raw
		b.hashed = append(b.hashed, string(raw))
	}
}

// evaluation reads eval_config: settings of the comparator, and what the agent has
// to say besides what it does.
func (b *builder) evaluation(t *truth) {
	e := b.entry.Below("eval_config")
	for _, name := range b.app.settings {
		if v := e.Get(name); v != nil {
			t.settings[name] = b.JSON(document.Entry{Path: e.At(name), Value: v})
		}
	}
	if b.app.comparator != compareFields {
		t.answer = e.Below("answer").JSON()
	}
	if b.app.free {
		for _, name := range e.Rest() {
			t.settings[name] = b.JSON(document.Entry{Path: e.At(name), Value: e.Get(name)})
		}
	}
	e.Done()
	for name, raw := range t.settings {
		if raw == nil {
			delete(t.settings, name) // it was reported
		}
	}
}
