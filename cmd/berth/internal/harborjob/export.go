package harborjob

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/export"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// exporter writes one job.
type exporter struct {
	run    *export.Run
	folder string
	job    string // id
	agents []string
	done   export.Done
	totals jobResult
}

// Export writes the accepted attempts of a run as a new job folder. Trials without
// an attempt are left out.
func Export(r *export.Run, folder string) (*export.Done, error) {
	trials := r.Trials
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	if err = export.NewFolder(folder); err != nil {
		return nil, err
	}
	e := &exporter{run: r, folder: folder, job: uuid("job " + r.Manifest.Header.Run), agents: names(r.Manifest)}
	e.totals = jobResult{ID: e.job, Started: timestamp{r.Manifest.Header.Created}, Total: len(trials), Stats: jobStats{Evals: map[string]*evalStats{}}}
	without := 0
	for _, t := range trials {
		a := t.Accepted()
		if a == nil {
			without++
			continue
		}
		res, err := store.ReadResult(report.Folder(r.Dir, t, a.Number))
		if err != nil || res.Trial != t.ID {
			e.note("%s: its result.json cannot be read: left out", t.Dir)
			continue
		}
		if err = e.trial(t, res); err != nil {
			return nil, err
		}
	}
	if without > 0 {
		e.note("%s no attempt: left out", terminal.Count(without, "trial has", "trials have"))
	}
	return &e.done, e.finish(trials)
}

func (e *exporter) note(format string, args ...any) {
	e.done.Notes = append(e.done.Notes, fmt.Sprintf(format, args...))
}

// names returns the name of each cell's agent in the job. Harbor tells agents apart
// by name and model only, so cells that share both are named after the cell.
func names(m *store.Manifest) []string {
	shared := map[[2]string]int{}
	for i := range m.Cells {
		shared[[2]string{m.Cells[i].Agent, m.Cells[i].Model}]++
	}
	all := make([]string, len(m.Cells))
	for i := range m.Cells {
		c := &m.Cells[i]
		if all[i] = c.Agent; shared[[2]string{c.Agent, c.Model}] > 1 && c.Slug != "" {
			all[i] = c.Slug
		}
		all[i] = strings.ReplaceAll(all[i], ":", "_") // a name with a colon is an import path
	}
	return all
}

// trial writes the folder of a trial.
func (e *exporter) trial(t *store.TrialState, r *record.Result) error {
	name := store.Name(strings.ReplaceAll(t.Dir, "/", "_"), 200)
	dir := filepath.Join(e.folder, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	from := report.Folder(e.run.Dir, t, r.Attempt)
	lost, err := e.copy(from, dir, r)
	if err != nil {
		return err
	}
	for _, l := range lost {
		e.note("%s: %s", name, l)
	}
	res := e.result(t, r, name)
	if err = writeJSON(filepath.Join(dir, configFile), res.Config); err == nil {
		err = writeJSON(filepath.Join(dir, resultFile), res)
	}
	if err == nil && t.TaskDigest != "" {
		c := &res.Config
		err = writeJSON(filepath.Join(dir, lockFile), trialLock{
			Version: 2, Task: taskLock{t.Task, "local", t.TaskDigest, t.Dataset, t.Task}, Agent: c.Agent, Environment: c.Environment,
		})
	}
	if err == nil && res.Exception != nil {
		err = os.WriteFile(filepath.Join(dir, "exception.txt"), []byte(res.Exception.Type+": "+res.Exception.Message+"\n"), 0o644)
	}
	if err != nil {
		return err
	}
	e.count(res)
	e.done.Rows++
	return nil
}

// result returns result.json of a trial.
func (e *exporter) result(t *store.TrialState, r *record.Result, name string) *trialResult {
	cell := &e.run.Manifest.Cells[t.Cell]
	agent := agentConfig{Name: e.agents[t.Cell], Model: cell.Model}
	res := &trialResult{
		ID: uuid("trial " + t.ID), Task: t.Task, Trial: name, URI: "berth:" + r.Run + "/" + t.ID, TaskID: map[string]string{"path": t.Task},
		Checksum: strings.TrimPrefix(t.TaskDigest, "sha256:"), Started: stamp(r.Start), Finished: stamp(r.End),
		Config: trialConfig{
			Task: taskConfig{Path: t.Task, Source: t.Dataset}, TrialName: name, TrialsDir: ".", Agent: agent,
			Environment: environment(r), JobID: e.job,
		},
		AgentInfo: agentInfo{Name: agent.Name, Version: "unknown"},
	}
	if t.Dataset != "" {
		res.Source = &t.Dataset
	}
	if cell.Model != "" {
		res.AgentInfo.Model = model(cell.Model)
	}
	for i := range r.Plugins {
		if p := &r.Plugins[i]; p.Kind == "agent" {
			res.AgentInfo.Version = p.Version
			break
		}
	}
	res.Agent = usage(r)
	res.Agent.Metadata = map[string]any{"berth": facts(r, cell)}
	outcome := t.Outcome()
	res.Verifier = rewards(r.Scores, r.Score)
	if typ := thrown(outcome, r.AgentEnd); typ != "" {
		res.Exception = thrownBy(r, typ)
	}
	if len(r.Stages) > 1 {
		res.Steps = steps(r)
	} else {
		res.Mode = verifierMode(r.Mode)
	}
	res.Environment = span(r, "", record.PhasePrepare, record.PhaseCreate, record.PhaseServices)
	res.Setup = span(r, "", record.PhaseSetup)
	res.Execution = span(r, "", record.PhaseTurn)
	res.Verified = span(r, "", record.PhaseVerify)
	return res
}

// facts are what a job has no place for.
func facts(r *record.Result, cell *store.Cell) map[string]any {
	return map[string]any{
		"run": r.Run, "trial": r.Trial, "cell": cell.Key, "repetition": r.Repetition, "attempt": r.Attempt, "outcome": r.Outcome,
		"agent_end": r.AgentEnd, "integrity": r.Integrity, "mode": r.Mode, "task_digest": r.TaskDigest, "berth": r.Berth,
	}
}

// thrownBy returns the exception that stands for the end of an attempt.
func thrownBy(r *record.Result, typ string) *exception {
	x := &exception{Type: typ, Message: string(r.Outcome), Occurred: timestamp{r.End}}
	if r.AgentEnd != "" {
		x.Message += ", the agent's turn ended by " + string(r.AgentEnd)
	}
	if r.Error != nil {
		x.Message = fmt.Sprintf("%s: %s: %s", r.Outcome, r.Error.Boundary, r.Error.Message)
	}
	x.Traceback = x.Message
	return x
}

// rewards returns the rewards of a verifier; nil if there are none.
func rewards(scores map[string]float64, score *float64) *verifierResult {
	v := &verifierResult{Rewards: map[string]*float64{}}
	for name, s := range scores {
		v.Rewards[name] = &s
	}
	if len(scores) == 0 && score != nil {
		v.Rewards[decisive] = score
	}
	if len(v.Rewards) == 0 {
		return nil
	}
	return v
}

// usage returns the use of models by the agent.
func usage(r *record.Result) *agentResult {
	all, of := &record.Usage{CostUSD: new(float64)}, map[string]*record.Usage{}
	for i := range r.Usage {
		u := &r.Usage[i]
		if u.Role != "agent" {
			continue
		}
		if of[u.Model] == nil {
			of[u.Model] = &record.Usage{CostUSD: new(float64)}
		}
		of[u.Model].Add(u)
		all.Add(u)
	}
	if len(of) == 0 {
		return &agentResult{}
	}
	a := &agentResult{Input: &all.InputTokens, Cached: &all.CachedTokens, Output: &all.OutputTokens, Cost: all.CostUSD, Models: map[string]modelUsage{}}
	for name, u := range of {
		a.Models[name] = modelUsage{u.InputTokens, u.CachedTokens, u.OutputTokens, u.CostUSD}
	}
	return a
}

// environment names the environment. Harbor knows a fixed list of them.
func environment(r *record.Result) environmentConfig {
	for i := range r.Plugins {
		if p := &r.Plugins[i]; p.Kind == "environment" {
			if slices.Contains([]string{"docker", "podman"}, p.Name) {
				return environmentConfig{Type: p.Name}
			}
			return environmentConfig{ImportPath: "berth:" + store.Name(p.Name, 80)}
		}
	}
	return environmentConfig{}
}

// model splits the provider off the name of a model, as Harbor does.
func model(name string) *modelInfo {
	if provider, rest, ok := strings.Cut(name, "/"); ok {
		return &modelInfo{Name: rest, Provider: provider}
	}
	return &modelInfo{Name: name}
}

// verifierMode returns Harbor's name of a verification mode: separate, or shared if
// the tests ran in the agent's sandbox or in a copy of it.
func verifierMode(mode string) *string {
	name := "shared"
	switch mode {
	case "":
		return nil
	case "separate", "copies":
		name = "separate"
	}
	return &name
}

// steps returns the results of the stages of an attempt.
func steps(r *record.Result) (all []stepResult) {
	for i := range r.Stages {
		s := &r.Stages[i]
		one := stepResult{
			Name: s.Name, Verifier: rewards(s.Rewards, nil), Execution: span(r, s.Name, record.PhaseTurn), Verified: span(r, s.Name, record.PhaseVerify),
		}
		if typ := thrown(s.Outcome, s.AgentEnd); typ != "" {
			one.Exception = &exception{Type: typ, Message: string(s.Outcome), Traceback: string(s.Outcome), Occurred: timestamp{r.End}}
			if s.Error != nil {
				one.Exception.Message = s.Error.Message
			}
		}
		all = append(all, one)
	}
	return all
}

// span returns the time from the first start to the last end of phases; an empty
// stage means all stages. Nil if there was none.
func span(r *record.Result, stage string, names ...record.PhaseName) *timing {
	var from, to time.Time
	for i := range r.Phases {
		p := &r.Phases[i]
		if !slices.Contains(names, p.Name) || stage != "" && p.Stage != stage {
			continue
		}
		if from.IsZero() || p.Start.Before(from) {
			from = p.Start
		}
		if p.End.After(to) {
			to = p.End
		}
	}
	if from.IsZero() {
		return nil
	}
	return &timing{stamp(from), stamp(to)}
}

// finish writes config.json and result.json of the job.
func (e *exporter) finish(trials []*store.TrialState) error {
	config := jobConfig{JobName: filepath.Base(e.folder), JobsDir: ".", Attempts: 1, Agents: []agentConfig{}, Datasets: []datasetConfig{}}
	m := e.run.Manifest
	for i := range m.Cells {
		a := agentConfig{Name: e.agents[i], Model: m.Cells[i].Model}
		if !slices.ContainsFunc(config.Agents, func(b agentConfig) bool { return a.Name == b.Name && a.Model == b.Model }) {
			config.Agents = append(config.Agents, a)
		}
	}
	last := time.Time{}
	for _, t := range trials {
		config.Attempts = max(config.Attempts, t.Repetition)
		if d := (datasetConfig{Path: t.Dataset}); !slices.Contains(config.Datasets, d) {
			config.Datasets = append(config.Datasets, d)
		}
		if a := t.Accepted(); a != nil && a.Result.End.After(last) {
			last = a.Result.End
		}
	}
	e.totals.Stats.finish(e.totals.Total)
	e.totals.Updated = stamp(last)
	if e.totals.Stats.Pending == 0 {
		e.totals.Finished = stamp(last)
	}
	return errors.Join(writeJSON(filepath.Join(e.folder, configFile), config), writeJSON(filepath.Join(e.folder, resultFile), e.totals))
}

// writeJSON writes a file as Harbor does, with an indentation of 4.
func writeJSON(file string, v any) error {
	b, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}
