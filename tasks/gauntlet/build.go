package gauntlet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
	"github.com/berth-eval/berth/tasks/internal/folder"
)

// maxPrefix bounds the text before a prompt, in bytes.
const maxPrefix = 1 << 20

// Names of resources, and of the capture.
const (
	pages      = "pages"
	truthFile  = "references/truth.json"
	solution   = "solution"
	captured   = "result"
	prefixFile = "prefix"
)

// success is the score that decides, and passes what it has to be.
const success = "success"

var passes = 1.0

// The solution of a task, which is not part of the published layout.
const (
	placeSolution = "/solution"
	actionsFile   = "actions.jsonl"
)

// builder makes a task of an entry.
type builder struct {
	*list

	item     *item
	root     *os.Root
	settings Config
	dir      string // of the dataset, absolute
	describe bool   // there is no experiment
	app      *application
	config   *App
	entry    *document.Table
	prompt   prompt
	t        task.Task
	hashed   []string // what the digest is over
}

// prompt is what an entry says to agents and to judges.
type prompt struct {
	text      string
	condition string // of success; empty: none
	judge     string // llm_judge_gt; empty: none
}

func (b *builder) build(ctx context.Context) error {
	values, ok := b.item.at.Value.(map[string]any)
	if !ok {
		b.Bad(b.item.at.Path, "Wrong type", "%s must be a mapping, got %s.", b.item.at.Path, b.Show(b.item.at.Value))
		return nil
	}
	b.entry = b.In(b.item.at.Path, values)
	if !b.identify() {
		return nil
	}
	at := b.read()
	truth := b.truth()
	b.entry.Done()
	if task.Broken(b.Problems) {
		return nil
	}
	b.make(at, truth)
	err := b.files(ctx)
	b.digest()
	return err
}

// identify checks the id, and finds the application.
func (b *builder) identify() bool {
	id := scalar(b.entry.Get("id"))
	if m := idForm.FindStringSubmatch(id); m != nil {
		b.app, b.config = b.settings.application(m[1])
	}
	if b.app == nil {
		var forms []string
		for i := range applications {
			forms = append(forms, "tc_"+applications[i].ids+"_")
		}
		b.entry.Bad("id", "Not an id", "id is %q: write one of %s and three digits, such as tc_graph_001. Other applications have a block application in the config block of the dataset.", id, strings.Join(forms, ", "))
		return false
	}
	for _, e := range b.item.more {
		b.Bad(e.Path+".id", "Id is used twice", "%q is also the id of %s in line %d.", id, b.item.at.Path, b.Position(b.item.at.Path).Line)
	}
	if b.config == nil {
		b.config = &App{}
	}
	return true
}

// read reads all of the entry but its ground truth.
func (b *builder) read() page {
	e := b.entry
	b.prompt = split(e.Required("prompt"))
	if b.prompt.text == "" && !task.Broken(b.Problems) {
		e.Bad("prompt", "Prompt is empty", "There is nothing before the success condition.")
	}
	b.prompt.judge = b.free(e, "llm_judge_gt")
	b.t.Labels = task.Labels{Category: b.app.name, Difficulty: strings.ToLower(scalar(e.Get("difficulty_level")))}
	website := ""
	if w := e.Below("website"); w.Exists() {
		website = w.Text("url", "")
		w.Done()
	}
	at := b.app.pageOf(b.config, website)
	switch {
	case at.problem == "":
	case b.describe:
		b.Warn(e.Path+".website", "No page is known yet", "%s", at.problem)
	default:
		e.Bad("website", "There is no page to open", "%s", at.problem)
	}
	return at
}

// free returns a value as text: a text as it is, and anything else as JSON.
func (b *builder) free(t *document.Table, key string) string {
	switch v := t.Get(key).(type) {
	case nil:
		return ""
	case string:
		return strings.TrimSpace(v)
	default:
		return string(b.JSON(document.Entry{Path: t.At(key), Value: v}))
	}
}

// The marks in a prompt. What follows the first is not for the agent, up to the
// second, which shows the form of the answer.
var (
	conditionMark = regexp.MustCompile(`(?i)[\s#*_]*\bsuccess\s+conditions?\s*[*_]*\s*:[*_]*`)
	formMark      = regexp.MustCompile(`(?m)^[ \t#*_]*RESULT FORMAT\b`)
)

// split takes the success condition out of a prompt.
func split(text string) (p prompt) {
	at := conditionMark.FindStringIndex(text)
	if at == nil {
		p.text = strings.TrimSpace(text)
		return p
	}
	p.text, p.condition = text[:at[0]], text[at[1]:]
	if form := formMark.FindStringIndex(p.condition); form != nil {
		rest := split(p.condition[form[0]:]) // there may be another condition
		p.text, p.condition = p.text+"\n\n"+rest.text, p.condition[:form[0]]+rest.condition
	}
	p.text, p.condition = strings.TrimSpace(p.text), strings.TrimSpace(p.condition)
	return p
}

// make fills in the task, apart from its files.
func (b *builder) make(at page, truth truth) {
	capture := b.app.captured(b.config, at)
	prediction := "answer"
	var captures []task.Capture
	if capture.Kind != captureNone && !truth.said {
		prediction = "attempt/captures/" + captured
		settings := map[string]any{"kind": capture.Kind}
		if settings["url"] = capture.URL; capture.Kind == captureScript {
			delete(settings, "url")
			settings["script"] = capture.Script
		}
		captures = []task.Capture{{Name: captured, Settings: object(settings)}}
	}
	delay := b.app.delay
	if b.config.InitialDelay != nil {
		delay = *b.config.InitialDelay
	}
	browser := map[string]any{"initial_delay": delay.String(), "end_on_message": true} // the agent's first message is its answer
	if at.url != "" {
		browser["url"] = at.url
	}
	observes := b.config.Observations
	if len(observes) == 0 {
		observes = slices.Clone(b.app.observes)
	}
	labels := b.t.Labels
	b.t = task.Task{
		Name: b.item.id, Format: Name, FormatVersion: b.version, Dir: b.dir, File: path.Join(b.File, b.item.name), Labels: labels,
		Metadata: object(map[string]any{"success_condition": b.prompt.condition, "llm_judge_gt": b.prompt.judge}),
		// No verifier has a score of this name, so their decisions count, and a trial
		// counts 0 or 1, although a circuit may have a part of its reward.
		Success: task.Success{Score: success, AtLeast: &passes},
		Mode:    task.ModeCopies, // the verifiers need no more than the captures and the record
		Environment: task.Environment{
			OS: "linux", Image: b.settings.Image, Network: at.network, Settings: object(browser),
		},
		Stages: []task.Stage{{
			Name: "main", Agent: task.Phase{Time: task.Duration(b.settings.AgentTime)}, Captures: captures,
			Surface:   &task.Surface{Observations: observes, Actions: b.config.Actions, Steps: b.settings.Steps, StepsOf: b.settings.StepsOf},
			Verifiers: b.verifiers(prediction, truth),
		}},
	}
	if truth.file != "" {
		b.t.Resources = []task.Resource{{Name: truthFile, Path: truth.file, Audience: []task.Role{task.RoleVerifier}}}
	}
}

// verifiers returns who judges: the comparator of the application, then another one
// if the task wants an answer, too, then the judge.
func (b *builder) verifiers(prediction string, truth truth) []task.VerifierUse {
	settings := map[string]any{"truth": truth.inline, "prediction": prediction}
	if truth.file != "" {
		settings["truth"] = truthFile
	}
	for name, value := range truth.settings {
		settings[name] = value
	}
	uses := []task.VerifierUse{{Name: b.app.comparator, Settings: object(settings)}}
	if truth.answer != nil {
		uses = append(uses, task.VerifierUse{Name: compareFields, Settings: object(map[string]any{"truth": truth.answer, "prediction": "answer"})})
	}
	if b.settings.Judge {
		judge := map[string]any{"success_condition": b.prompt.condition, "llm_judge_gt": b.prompt.judge}
		if b.config.Prefix != "" || b.settings.Instruct != "" { // the judge gets the prompt alone
			judge["instruction"] = b.prompt.text
		}
		uses = append(uses, task.VerifierUse{Name: "visual-judge", Advisory: true, Settings: object(judge)})
	}
	return uses
}

// object returns the JSON of an object without its empty texts.
func object(m map[string]any) json.RawMessage {
	for name, v := range m {
		if v == "" {
			delete(m, name)
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // texts, and JSON that is valid
	}
	return b
}

// text returns a file of at most limit bytes, without a byte order mark.
func (b *builder) text(file string, limit int64) ([]byte, error) {
	data, err := folder.Read(b.root, file, limit)
	data, marked := folder.Unmarked(file, data)
	if marked != nil {
		b.Problems = append(b.Problems, *marked)
	}
	return data, err
}

// files adds the pages, the text before the prompt and the solution.
func (b *builder) files(ctx context.Context) error {
	text := b.prompt.text + "\n"
	if of := b.settings.Instruct; of != "" {
		text = strings.TrimSpace(strings.ReplaceAll(of, promptMark, b.prompt.text)) + "\n"
		b.hashed = append(b.hashed, of)
	}
	if prefix := b.config.Prefix; prefix != "" {
		if b.config.prefixFile() {
			data, err := b.text(clean(prefix), maxPrefix)
			if err != nil {
				return fmt.Errorf("%s.prefix: %w", b.app.name, err)
			}
			b.t.Resources = append(b.t.Resources, task.Resource{Name: prefixFile, Path: clean(prefix)})
			prefix = string(data)
		}
		text = strings.TrimSpace(prefix) + "\n\n" + text
		b.hashed = append(b.hashed, prefix)
	}
	b.t.Stages[0].Instruction = []task.Part{{Text: text}}
	if name := b.config.Pages; name != "" {
		if err := b.folder(ctx, task.Resource{Name: pages, Path: clean(name)}); err != nil {
			return err
		}
		if len(b.t.Resources[len(b.t.Resources)-1].Entries) == 0 {
			return fmt.Errorf("%s.pages: there is no folder %s with files in the dataset", b.app.name, name)
		}
		b.t.Environment.Files = []string{pages}
	}
	if b.settings.Solutions == "" {
		return nil
	}
	at := path.Join(clean(b.settings.Solutions), b.item.id)
	if _, err := b.root.Stat(path.Join(at, actionsFile)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	b.t.Stages[0].Reference = &task.Reference{Resource: solution, Argv: []string{"cat", path.Join(placeSolution, actionsFile)}}
	return b.folder(ctx, task.Resource{
		Name: solution, Path: at, Audience: []task.Role{task.RoleOracle}, Place: placeSolution, Phase: task.PlaceTurn,
	})
}

func clean(p string) string { return path.Clean(filepath.ToSlash(p)) }

// folder adds a resource with all files of its folder.
func (b *builder) folder(ctx context.Context, r task.Resource) error {
	all, err := folder.Scan(ctx, b.root, r.Path)
	if err != nil {
		return err
	}
	r.Folder, r.Entries = true, all.Entries(folder.Whole, func(string) bool { return true })
	b.t.Resources = append(b.t.Resources, r)
	sum, err := all.Digest(ctx, r.Name, nil)
	b.hashed = append(b.hashed, sum)
	b.Problems = append(append(b.Problems, all.Problems...), all.Contents...)
	return err
}

// digest is over all that the task says, and over its files, but not over other
// tasks of the list.
func (b *builder) digest() {
	h := sha256.New()
	for _, text := range append(b.hashed, string(b.JSON(b.item.at))) {
		fmt.Fprintf(h, "%d\x00%s", len(text), text)
	}
	b.t.Digest = "sha256:" + hex.EncodeToString(h.Sum(nil))
}
