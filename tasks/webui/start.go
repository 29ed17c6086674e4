package webui

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Names in the folder of a run, of which the schemas are published.
const (
	runManifest = "manifest.jsonl"
	runTrials   = "trials"
	runResult   = "result.json"
	runCaptures = "captures"
)

// Bounds of what is read of a run, in bytes.
const (
	maxRunLine  = 32 << 20
	maxRunPlan  = 1 << 30
	maxRunFile  = 64 << 20
	maxRunRoot  = 4096     // names in the folder of a trial
	maxRunPage  = 1 << 20  // a file that an agent wrote: no action takes more
	maxRunParts = 20 << 20 // all of them
)

// pastTrial is a trial of the run from which an agent starts.
type pastTrial struct {
	Dir        string `json:"dir"`
	Task       string `json:"task"`
	Cell       int    `json:"cell"`
	Repetition int    `json:"repetition"`
}

// start adds what an agent wrote in another run, which the agents of this one begin
// with. It returns a folder of the task's files for each repetition; an empty name is
// a page that was never written.
func (b *builder) start(dataset string) (folders []string) {
	run := filepath.FromSlash(b.config.Start)
	if run == "" {
		return nil
	}
	if !filepath.IsAbs(run) {
		run = filepath.Join(dataset, run)
	}
	bad := func(why any) []string {
		b.bad("", 0, "There is nothing to start from", "start = %q: %s", b.config.Start, why)
		b.problems[len(b.problems)-1].Outside = true
		return nil
	}
	trials, err := b.pastTrials(run)
	if err != nil {
		return bad(err)
	}
	all, h := 0, sha256.New()
	fmt.Fprintf(h, "%s\n", b.t.Digest)
	for i := range trials {
		files, err := writtenIn(filepath.Join(run, runTrials, trials[i].Dir))
		if err != nil {
			return bad(fmt.Errorf("trial %s: %w", trials[i].Dir, err))
		}
		name := fmt.Sprintf("start/%d", i+1)
		r := task.Resource{Name: name, Folder: true}
		for _, file := range slices.Sorted(maps.Keys(files)) {
			text := files[file]
			fmt.Fprintf(h, "%s/%s\x00%x\n", name, file, sha256.Sum256([]byte(text)))
			r.Entries = append(r.Entries, task.Entry{Path: file, Mode: 0o644, Size: int64(len(text)), Text: text})
			all += len(text)
		}
		if all > maxRunParts {
			return bad(fmt.Sprintf("the pages of all repetitions have more than %d MiB", maxRunParts>>20))
		}
		if len(r.Entries) == 0 {
			name = ""
		} else {
			b.t.Resources, b.t.Environment.Files = append(b.t.Resources, r), append(b.t.Environment.Files, name)
		}
		folders = append(folders, name)
	}
	b.t.Digest = "sha256:" + hex.EncodeToString(h.Sum(nil))
	return folders
}

// pastTrials returns the trials of the task in a run, by repetition.
func (b *builder) pastTrials(run string) (all []pastTrial, err error) {
	cells := map[int]string{}
	cut, err := untrusted.Lines(run, runManifest, maxRunLine, maxRunPlan, func(line []byte) {
		var l struct {
			Cell *struct {
				Index int    `json:"index"`
				Slug  string `json:"slug"`
			} `json:"cell"`
			Trial *pastTrial `json:"trial"`
		}
		switch {
		case json.Unmarshal(line, &l) != nil:
		case l.Cell != nil:
			cells[l.Cell.Index] = l.Cell.Slug
		case l.Trial != nil && l.Trial.Task == b.t.Name && filepath.IsLocal(l.Trial.Dir):
			all = append(all, *l.Trial)
		}
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s is not the folder of a run: it has no %s", run, runManifest)
	case err != nil:
		return nil, err
	case cut:
		return nil, fmt.Errorf("%s is too large", runManifest)
	}
	names := map[string]bool{}
	for i := range all {
		names[cells[all[i].Cell]] = true
	}
	wanted := b.config.StartCell
	switch known := strings.Join(slices.Sorted(maps.Keys(names)), ", "); {
	case len(all) == 0:
		return nil, fmt.Errorf("the run has no trial of the task %q", b.t.Name)
	case wanted == "" && len(names) > 1:
		return nil, fmt.Errorf("the run has several cells: choose one with start_cell: %s", known)
	case wanted != "" && !names[wanted]:
		return nil, fmt.Errorf("the run has no cell %q: choose from %s", wanted, known)
	}
	all = slices.DeleteFunc(all, func(r pastTrial) bool { return wanted != "" && cells[r.Cell] != wanted })
	slices.SortFunc(all, func(x, y pastTrial) int { return cmp.Compare(x.Repetition, y.Repetition) })
	return all, nil
}

// writtenIn returns the files that the agent wrote in the last attempt of a trial that
// has a score.
func writtenIn(trial string) (map[string]string, error) {
	entries, err := untrusted.Dir(trial, ".", maxRunRoot)
	if err != nil {
		return nil, err
	}
	last, at := 0, ""
	var stages []struct {
		Name string `json:"name"`
	}
	for _, e := range entries {
		var n int
		if _, err := fmt.Sscanf(e.Name(), "attempt-%d", &n); err != nil || n <= last {
			continue
		}
		var r struct {
			Score  *float64 `json:"score"`
			Stages []struct {
				Name string `json:"name"`
			} `json:"stages"`
		}
		raw, err := untrusted.Read(trial, path.Join(e.Name(), runResult), maxRunFile)
		if err == nil {
			err = json.Unmarshal(raw, &r)
		}
		if err == nil && r.Score != nil {
			last, at, stages = n, e.Name(), r.Stages
		}
	}
	if at == "" {
		return nil, errors.New("none of its attempts has a score")
	}
	dir := filepath.Join(trial, at, runCaptures, captureResult)
	if n := len(stages); n > 1 { // one that was itself made in several iterations
		dir = filepath.Join(trial, at, runCaptures, filepath.Base(stages[n-1].Name), captureResult)
	}
	files := map[string]string{}
	for _, name := range []string{fileHTML, fileCSS, fileJavaScript} {
		text, err := untrusted.Read(dir, name, maxRunPage)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		case len(text) > 0:
			files[name] = string(text)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("%s has no page that was captured", at)
	}
	return files, nil
}
