package harborjob

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Bounds of what is read of a job.
const (
	maxTrials = 1_000_000
	maxJSON   = 64 << 20 // bytes of one file of JSON
)

// imported is what the plan of a run needs of a trial of a job. Its result is read
// again when it is published, so that one result at a time is in memory.
type imported struct {
	dir         string // name of its folder
	finished    bool   // it has a result
	started     time.Time
	task        string // empty: its files name none
	dataset     string
	digest      string // of the task; empty: not known
	agent       string
	model       string
	environment string // empty: not known
	settings    string // what makes its cell: see rawConfig.settings
	cell        int
	trial       store.Trial
}

// rawConfig is the part of a trial's configuration that says what it is.
type rawConfig struct {
	Task        rawTask                    `json:"task"`
	Agent       map[string]json.RawMessage `json:"agent"`
	Environment struct {
		Type string `json:"type"`
	} `json:"environment"`
}

type rawTask struct {
	Path   string `json:"path"`
	Name   string `json:"name"`
	Source string `json:"source"`
}

// Imported says what was imported.
type Imported struct {
	Dir    string // of the run
	Trials int
	Notes  []string
}

// Import reads a job folder and writes it as a new run below runs. berth is the
// version of this program. Trials without a result are planned trials that did not
// run.
func Import(job, runs, berth string) (*Imported, error) {
	job, err := filepath.Abs(job)
	if err != nil {
		return nil, err
	}
	done := &Imported{}
	trials, err := readJob(job, done)
	if err != nil {
		return nil, err
	}
	m := &store.Manifest{Header: store.Header{Experiment: filepath.Base(job), Berth: berth, Imported: "harbor"}}
	m.Header.Created = created(job, trials)
	arrange(m, trials)
	var files []store.File
	for _, name := range []string{configFile, resultFile, lockFile} {
		if b, readErr := untrusted.Read(job, name, maxJSON); readErr == nil {
			files = append(files, store.File{Name: "harbor-" + name, Bytes: b})
		}
	}
	run, err := store.Create(runs, m, files)
	if err != nil {
		return nil, err
	}
	done.Dir, done.Trials = run.Dir, len(trials)
	for i := range trials {
		if !trials[i].finished {
			continue
		}
		if err = publish(run, job, &trials[i], done); err != nil {
			return nil, errors.Join(err, run.Close())
		}
	}
	return done, run.Close()
}

// readJob reads the trials of a job.
func readJob(job string, done *Imported) ([]imported, error) {
	entries, err := untrusted.Dir(filepath.Dir(job), filepath.Base(job), maxTrials)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist", job)
	}
	if err != nil {
		return nil, err
	}
	var trials []imported
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		t, note := readTrial(filepath.Join(job, e.Name()))
		if note != "" {
			done.Notes = append(done.Notes, e.Name()+": "+note)
		}
		if t != nil {
			trials = append(trials, *t)
		}
	}
	if len(trials) == 0 {
		return nil, fmt.Errorf("%s has no trials: expected the folder of one job, with a folder for each trial that has config.json and result.json", job)
	}
	slices.SortFunc(trials, func(a, b imported) int {
		return cmp.Or(a.started.Compare(b.started), strings.Compare(a.dir, b.dir))
	})
	return trials, nil
}

// readTrial reads what the plan needs of the trial in a folder. Nil if the folder is
// no trial, or if it cannot be one of the run; note says what is wrong with it.
func readTrial(dir string) (t *imported, note string) {
	c, r := &rawConfig{}, &trialResult{}
	switch err := readJSON(dir, configFile, c); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "" // not a trial
	case err != nil:
		return nil, fmt.Sprintf("left out: %v", err)
	}
	switch err := readJSON(dir, resultFile, r); {
	case errors.Is(err, fs.ErrNotExist):
		r, note = nil, "it was not finished: not_run"
	case err != nil:
		r, note = nil, fmt.Sprintf("not_run: %v", err)
	}
	t = &imported{
		dir: filepath.Base(dir), finished: r != nil, task: c.taskName(r), dataset: c.dataset(r), digest: taskDigest(dir), environment: c.Environment.Type,
	}
	if t.task == "" {
		return nil, strings.TrimPrefix(note+"; left out: it names no task", "; ")
	}
	if r != nil && r.Started != nil {
		t.started = r.Started.Time
	}
	t.agent, t.model = c.agent(r)
	t.settings = c.settings(t.agent, t.model)
	return t, note
}

func readJSON(dir, name string, v any) error {
	b, err := untrusted.Read(dir, name, maxJSON)
	if err != nil {
		return err
	}
	if err = json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	return nil
}

// taskDigest returns the digest of a trial's task from its lock file. It is
// computed as Berth computes it, so that the same task has the same digest.
func taskDigest(dir string) string {
	var lock struct {
		Task struct {
			Digest string `json:"digest"`
		} `json:"task"`
	}
	if readJSON(dir, lockFile, &lock) != nil {
		return ""
	}
	d := lock.Task.Digest
	if d != "" && !strings.Contains(d, ":") {
		d = "sha256:" + d
	}
	return d
}

// taskName returns the name of the trial's task. r is the trial's result, if it has
// one.
func (c *rawConfig) taskName(r *trialResult) string {
	switch {
	case r != nil && r.Task != "":
		return r.Task
	case c.Task.Name != "":
		return c.Task.Name
	case c.Task.Path != "":
		return filepath.Base(c.Task.Path)
	default:
		return ""
	}
}

// dataset returns the label of the dataset that the task is of.
func (c *rawConfig) dataset(r *trialResult) string {
	if r != nil && r.Source != nil && *r.Source != "" {
		return *r.Source
	}
	return cmp.Or(c.Task.Source, "adhoc")
}

// agent returns the name of the trial's agent and of its model.
func (c *rawConfig) agent(r *trialResult) (name, model string) {
	text := func(key string) (s string) {
		_ = json.Unmarshal(c.Agent[key], &s) // absent or of another type: empty
		return s
	}
	name, model = cmp.Or(text("name"), text("import_path")), text("model_name")
	if r != nil {
		name = cmp.Or(name, r.AgentInfo.Name)
		if m := r.AgentInfo.Model; model == "" && m != nil {
			model = m.Name
			if m.Provider != "" {
				model = m.Provider + "/" + m.Name
			}
		}
	}
	return cmp.Or(name, "unknown"), model
}

// created returns when the job began.
func created(job string, trials []imported) time.Time {
	var r jobResult
	if readJSON(job, resultFile, &r) == nil && !r.Started.IsZero() {
		return r.Started.Time
	}
	for i := range trials {
		if at := trials[i].started; !at.IsZero() {
			return at
		}
	}
	return time.Time{}
}

// settings returns what makes the trial's cell: its agent with its model and options,
// and its environment. Options that do not change what an agent does are left out.
func (c *rawConfig) settings(name, model string) string {
	agent := maps.Clone(c.Agent)
	for _, key := range []string{"n_concurrent", "concurrency_group", "env"} {
		delete(agent, key)
	}
	b, err := json.Marshal(map[string]any{"name": name, "model": model, "agent": agent, "environment": c.Environment.Type})
	if err != nil {
		return ""
	}
	return string(b)
}

// arrange makes the cells and the plan of the run.
func arrange(m *store.Manifest, trials []imported) {
	byName := map[[2]string][]string{} // agent and model: settings
	for i := range trials {
		key := [2]string{trials[i].agent, trials[i].model}
		if s := trials[i].settings; !slices.Contains(byName[key], s) {
			byName[key] = append(byName[key], s)
		}
	}
	cells, times := map[string]int{}, map[string]int{}
	for i := range trials {
		t := &trials[i]
		alike := byName[[2]string{t.agent, t.model}]
		n, known := cells[t.settings]
		if !known {
			n = len(m.Cells)
			cells[t.settings] = n
			m.Cells = append(m.Cells, newCell(t, n, slices.Index(alike, t.settings)+1, len(alike)))
		}
		t.cell = n
		of := fmt.Sprint(n, "\x00", t.dataset, "\x00", t.task, "\x00", t.digest)
		times[of]++
		id := plan.TrialID(t.task, t.digest, json.RawMessage(t.settings), times[of])
		t.trial = store.Trial{
			ID: id, Dir: store.TrialDir(t.task, m.Cells[n].Slug, times[of], id), Task: t.task, TaskDigest: t.digest,
			Dataset: t.dataset, Cell: n, Repetition: times[of],
		}
		m.Trials = append(m.Trials, t.trial)
	}
}

// newCell returns a cell of the run. number is its place among the cells with the
// same agent and model, of which there are so many.
func newCell(t *imported, index, number, alike int) store.Cell {
	name, model := t.agent, t.model
	c := store.Cell{
		Index: index, Key: "agent=" + name, Slug: store.Name(name, 60), Choices: map[string]string{"agent": name}, Agent: name, Model: model,
		Environment: cmp.Or(t.environment, "docker"), Identity: map[string]json.RawMessage{t.dataset: json.RawMessage(t.settings)},
	}
	if model != "" {
		c.Key += " model=" + model
		c.Slug += "-" + store.Name(model, 60)
		c.Choices["model"] = model
	}
	if alike > 1 {
		c.Choices["options"] = fmt.Sprint(number)
		c.Key += fmt.Sprintf(" options=%d", number)
		c.Slug += fmt.Sprintf("-%d", number)
	}
	return c
}

// publish writes a trial's attempt.
func publish(run *store.Run, job string, t *imported, done *Imported) error {
	r, dir := &trialResult{}, filepath.Join(job, t.dir)
	if err := readJSON(dir, resultFile, r); err != nil {
		return err // it was read before
	}
	a, err := run.Begin(t.trial.ID)
	if err != nil {
		return err
	}
	c := &copier{}
	if err = take(a, dir, r.steps(), c); err != nil {
		return errors.Join(err, a.Abandon())
	}
	for _, l := range c.lost {
		done.Notes = append(done.Notes, t.dir+": "+l)
	}
	return a.Publish(t.attempt(r, run, a.Number()))
}

// attempt returns the result of a trial of a job.
func (t *imported) attempt(r *trialResult, run *store.Run, number int) record.Result {
	cell := &run.Manifest.Cells[t.cell]
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	res := record.Result{
		Version: 1, Run: run.Manifest.Header.Run, Trial: t.trial.ID, Task: t.trial.Task, TaskDigest: t.trial.TaskDigest, Cell: cell.Choices,
		Repetition: t.trial.Repetition, Attempt: number, Host: host, Berth: run.Manifest.Header.Berth,
		Integrity: record.Unknown, Reasons: []string{"imported from a job of Harbor: Berth did not watch it"},
		Oracle: cell.Agent == "oracle", Phases: r.phases(), Usage: r.usage(),
	}
	if r.Mode != nil {
		res.Mode = map[string]string{"shared": "live", "separate": "separate"}[*r.Mode]
	}
	if r.Started != nil {
		res.Start = r.Started.Time
	}
	if r.Finished != nil {
		res.End = r.Finished.Time
	}
	for i := range res.Phases {
		if p := &res.Phases[i]; p.Name == record.PhaseTurn {
			res.AgentTime += max(0, p.End.Sub(p.Start))
		}
	}
	res.Stages = r.stages()
	res.Scores = r.rewards()
	by := record.Boundary("")
	res.Outcome, res.AgentEnd, by = r.outcome(res.Scores)
	if v, ok := res.Scores[decisive]; ok && (res.Outcome == record.Passed || res.Outcome == record.Failed) {
		res.Score = &v
	}
	if by != "" {
		res.Error = &record.Error{Boundary: by, Phase: phase(by), Message: "result.json has neither rewards nor an exception"}
		if e := r.thrown(); e != nil {
			res.Error.Message = e.Type + ": " + e.Message
		}
		if r.RewardValid != nil && !*r.RewardValid && len(res.Scores) > 0 {
			res.Error.Message += " (the job says that its reward is not valid)"
		}
	}
	return res
}

func phase(by record.Boundary) record.PhaseName {
	switch by {
	case record.ByVerifier:
		return record.PhaseVerify
	case record.ByEnvironment:
		return record.PhaseCreate
	default:
		return record.PhaseTurn
	}
}
