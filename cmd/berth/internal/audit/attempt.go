package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// maxChecksums bounds the list of an attempt's files, in bytes.
const maxChecksums = 256 << 20

// attempt checks one attempt, with a result or without.
func (a *audit) attempt(t *store.TrialState, state *store.AttemptState) {
	name := path.Join(store.TrialsDir, t.Dir, store.AttemptDir(state.Number))
	dir := filepath.Join(a.dir, filepath.FromSlash(name))
	if state.Result == nil {
		a.skip(files, "attempts without a result, whose process was killed or is still there: nothing lists their files")
		return
	}
	if state.By == "" {
		a.problem(journals, name, 0, "no journal has the beginning of this attempt: a journal, or lines of it, were removed")
	}
	a.files(name, dir)
	r, err := store.ReadResult(dir)
	if err != nil {
		a.problem(results, path.Join(name, record.ResultFile), 0, "it cannot be read: %v", err)
		return
	}
	a.did(results, 1)
	if differs := briefs(state.Result, store.BriefOf(r)); differs != "" {
		a.problem(results, path.Join(name, record.ResultFile), 0, "it is not the result that the journal has: %s", differs)
	}
	a.identity(path.Join(name, record.ResultFile), t, r)
	a.taskUsed(r)
	a.scores(name, dir, r)
	a.usage(name, dir, r)
}

// identity checks that a result is that of its trial.
func (a *audit) identity(file string, t *store.TrialState, r *record.Result) {
	for _, x := range []struct{ what, got, want string }{
		{"trial", r.Trial, t.ID},
		{"run", r.Run, a.manifest.Header.Run},
		{"task", r.Task, t.Task},
		{"repetition", fmt.Sprint(r.Repetition), fmt.Sprint(t.Repetition)},
	} {
		if x.got != x.want {
			a.problem(results, file, 0, "its %s is %q, and the manifest has %q", x.what, x.got, x.want)
		}
	}
	if r.TaskDigest != t.TaskDigest && r.Regraded == nil && r.Outcome != record.TaskInvalid {
		a.problem(results, file, 0, "it is of the task with the digest %s, and the manifest has %s", r.TaskDigest, t.TaskDigest)
	}
	if !reflect.DeepEqual(r.Cell, a.manifest.Cells[t.Cell].Choices) && len(r.Cell)+len(a.manifest.Cells[t.Cell].Choices) > 0 {
		a.problem(results, file, 0, "its cell is %v, and the manifest has %v", r.Cell, a.manifest.Cells[t.Cell].Choices)
	}
}

// briefs says how two briefs differ; empty: not at all.
func briefs(journal, result *store.Brief) string {
	had, has := fields(journal), fields(result)
	for _, k := range slices.Sorted(maps.Keys(has)) {
		if string(had[k]) != string(has[k]) && k != "queued_ns" { // how long it waited is in the journal alone
			return fmt.Sprintf("%s is %s, and the journal has %s", k, shown(has[k]), shown(had[k]))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(had)) {
		if _, known := has[k]; !known && k != "queued_ns" {
			return fmt.Sprintf("it has no %s, and the journal has %s", k, shown(had[k]))
		}
	}
	return ""
}

func fields(b *store.Brief) (all map[string]json.RawMessage) {
	text, err := json.Marshal(b)
	if err != nil || json.Unmarshal(text, &all) != nil {
		return nil
	}
	return all
}

// shown shortens a value for a message.
func shown(v json.RawMessage) string {
	switch {
	case len(v) == 0:
		return "none"
	case len(v) > 200:
		return string(v[:200]) + "…"
	}
	return string(v)
}

// files compares the files of an attempt with the list that it has of them, and
// that list and the result with the journal.
func (a *audit) files(name, dir string) {
	list := path.Join(name, store.ChecksumsFile)
	if a.sums[list] == "" {
		a.skip(files, "the journal has no checksums of an attempt that its process did not end: it was interrupted or lost")
		return
	}
	a.same(files, list, a.sums[list])
	a.same(files, path.Join(name, record.ResultFile), a.sums[path.Join(name, record.ResultFile)])
	var was store.Checksums
	b, err := untrusted.Read(dir, store.ChecksumsFile, maxChecksums)
	if err == nil {
		err = json.Unmarshal(b, &was)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) { // named above
			a.problem(files, list, 0, "it cannot be read: %v", err)
		}
		return
	}
	is, err := store.ChecksumsOf(dir)
	if err != nil {
		a.problem(files, name, 0, "its files cannot be read: %v", err)
		return
	}
	a.did(files, len(was.Files))
	for file, want := range was.Files {
		got, there := is.Files[file]
		switch {
		case !there:
			a.problem(files, path.Join(name, file), 0, "it is missing")
		case got != want:
			a.problem(files, path.Join(name, file), 0, "it was changed: its checksum is %s, and %s was recorded", got, want)
		}
	}
	for file := range is.Files {
		if _, known := was.Files[file]; !known {
			a.problem(files, path.Join(name, file), 0, "it was added after the attempt had ended")
		}
	}
}
