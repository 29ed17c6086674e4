// Package audit computes the numbers of a run again from its raw records, and says
// what differs from what was recorded. It signs what it found, and checks such a
// signature.
//
// It must not repair anything, and must not start a plugin.
package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/store"
)

// maxListed is how many problems of a check are listed.
const maxListed = 100

// The checks, in the order in which they are printed.
const (
	journals = iota
	manifest
	files
	results
	scores
	usage
	digests
)

// audit is an audit under way.
type audit struct {
	dir      string
	manifest *store.Manifest
	index    *store.Index
	// sums are the checksums that journals have of files of attempts, by the path
	// of the file below the run.
	sums map[string]string

	used  map[string]bool // tasks with their digests, of attempts
	page  output.Audit
	notes [digests + 1]map[string]int // what could not be checked, and how often
}

// Tasks are the digests of tasks that are here, by the label of their dataset and
// their name. An empty one is not known, because something that the settings of the
// dataset name is not here.
type Tasks map[string]map[string]string

// Run audits the run in dir, and its tasks, which are nil if they are not known. An
// error means that it cannot be read at all; everything else is a problem of the
// page.
func Run(dir string, tasks Tasks) (*output.Audit, error) {
	m, x, err := store.Read(dir)
	if err != nil {
		return nil, err
	}
	a := &audit{dir: dir, manifest: m, index: x, sums: map[string]string{}, used: map[string]bool{}}
	a.page = output.Audit{
		Version: 1, Run: m.Header.Run, Journals: map[string]string{}, Outcomes: map[string]int{}, Integrity: map[string]int{}, Modes: map[string]int{},
		Interventions: summary.Interventions(x),
		Checks: []output.AuditCheck{
			journals: {Name: "journals", What: "The checksum and the number of each line of the journals."},
			manifest: {Name: "manifest", What: "The checksum of the manifest, the id of each trial, and the files of the experiment."},
			files:    {Name: "files", What: "The checksum of each file of each attempt."},
			results:  {Name: "results", What: "Each result.json beside the line of the journal."},
			scores:   {Name: "scores", What: "Scores, outcome and integrity, from the verdicts, findings and reward files."},
			usage:    {Name: "usage", What: "Requests, tokens and costs of each attempt from its recorded requests, and of these from the replies."},
			digests:  {Name: DigestsCheck, What: "The digest of each task of an archive, from its files."},
		},
	}
	if err = a.journals(); err != nil {
		return nil, err
	}
	a.theManifest()
	a.attempts()
	a.numbers()
	a.tasks(tasks)
	a.uncovered()
	if w := x.Writing(); w != nil {
		a.skip(results, fmt.Sprintf("the run is in progress (%s): what is under way counts as it is now", w.Process))
	}
	if f := m.Header.Imported; f != "" {
		a.skip(files, "the run was imported from the format "+f+": what it was made of is not here")
	}
	for i := range a.page.Checks {
		c := &a.page.Checks[i]
		for note, n := range a.notes[i] {
			if n > 1 {
				note = fmt.Sprintf("%s (%d times)", note, n)
			}
			c.Unchecked = append(c.Unchecked, note)
		}
		slices.Sort(c.Unchecked)
		slices.SortFunc(c.Problems, func(a, b output.AuditProblem) int {
			return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Text, b.Text))
		})
		a.page.Problems += len(c.Problems) + c.More
	}
	return &a.page, nil
}

// problem notes what is not as it was recorded.
func (a *audit) problem(check int, file string, line int, format string, args ...any) {
	c := &a.page.Checks[check]
	if len(c.Problems) >= maxListed {
		c.More++
		return
	}
	c.Problems = append(c.Problems, output.AuditProblem{File: file, Line: line, Text: fmt.Sprintf(format, args...)})
}

// skip notes what cannot be checked, and why.
func (a *audit) skip(check int, why string) {
	if a.notes[check] == nil {
		a.notes[check] = map[string]int{}
	}
	a.notes[check][why]++
}

// did counts what was checked.
func (a *audit) did(check, n int) {
	a.page.Checks[check].Checked += n
}

// same compares the checksum of a file with what was recorded.
func (a *audit) same(check int, file, want string) {
	a.did(check, 1)
	got, err := store.SumOf(filepath.Join(a.dir, filepath.FromSlash(file)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		a.problem(check, file, 0, "it is missing")
	case err != nil:
		a.problem(check, file, 0, "it cannot be read: %v", err)
	case got != want:
		a.problem(check, file, 0, "it was changed: its checksum is %s, and %s was recorded", got, want)
	}
}

// journals checks each line, and collects the checksums that journals have of other
// files.
func (a *audit) journals() error {
	all, err := store.ReadJournals(a.dir)
	if err != nil {
		return err
	}
	dirs := make(map[string]string, len(a.manifest.Trials))
	for i := range a.manifest.Trials {
		dirs[a.manifest.Trials[i].ID] = a.manifest.Trials[i].Dir
	}
	of := map[string]string{} // files of the run, as the last entry about them says
	for i := range all {
		j := &all[i]
		name := path.Join(store.JournalDir, j.Writer+".jsonl")
		a.did(journals, len(j.Entries)+len(j.Bad))
		bad := j.Bad
		if j.Tail {
			bad = bad[:len(bad)-1]
			a.skip(journals, name+": a crash of its writer left a part of the last line, which does not count")
		}
		for _, n := range bad {
			a.problem(journals, name, n, "the line was changed, cut off or removed: its checksum or its number is wrong")
		}
		if a.page.Journals[j.Writer], err = store.SumOf(filepath.Join(a.dir, filepath.FromSlash(name))); err != nil {
			return err
		}
		delete(of, store.PluginsFile) // a writer may have been killed after it had written these
		delete(of, store.SummaryFile)
		for k := range j.Entries {
			e := &j.Entries[k]
			for file, sum := range e.Sums {
				if e.Kind != store.AttemptEnded {
					of[file] = sum
				} else if dir, known := dirs[e.Trial]; known {
					a.sums[path.Join(store.TrialsDir, dir, store.AttemptDir(e.Attempt), file)] = sum
				}
			}
		}
	}
	for file, sum := range of {
		a.same(manifest, file, sum)
	}
	if of[store.ManifestFile] == "" {
		a.skip(manifest, "no journal has the checksum of the manifest: a crash took the line that has it")
	}
	if _, err = os.Lstat(filepath.Join(a.dir, store.PluginsFile)); err == nil && of[store.PluginsFile] == "" {
		a.skip(manifest, "no checksum of "+store.PluginsFile+" (messages of plugins): the last process that wrote the run did not end by itself")
	}
	return nil
}

// theManifest checks the ids of trials, which depend on everything that decides a
// result, and the files of the experiment.
func (a *audit) theManifest() {
	m := a.manifest
	a.page.Manifest, _ = store.SumOf(filepath.Join(a.dir, store.ManifestFile)) // it was read before
	for i := range m.Trials {
		t := &m.Trials[i]
		a.did(manifest, 1)
		if t.TaskDigest == "" || m.Header.Imported != "" {
			continue // an invalid task has no content; another program has other ids
		}
		line := 2 + len(m.Cells) + i
		if id := plan.TrialID(t.Task, t.TaskDigest, m.Cells[t.Cell].Identity[t.Dataset], t.Repetition); id != t.ID {
			a.problem(manifest, store.ManifestFile, line, "trial %s of task %q: its cell, task and repetition give the id %s", t.ID, t.Task, id)
		}
	}
	for name, want := range m.Header.Files {
		file, err := filepath.Rel(a.dir, m.Header.Kept(a.dir, name))
		if err == nil {
			a.same(manifest, filepath.ToSlash(file), want)
		}
	}
}

// uncovered names the files of the run that no checksum covers. No number is made
// of them.
func (a *audit) uncovered() {
	found, err := os.ReadDir(a.dir)
	if err != nil {
		return // it was read before
	}
	for _, e := range found {
		switch name := e.Name(); {
		case name == store.ManifestFile || name == store.JournalDir || name == store.SummaryFile || name == store.PluginsFile || name == store.TrialsDir:
		case name == store.ExperimentDir || strings.HasPrefix(name, store.ExperimentDir+"-"):
		default:
			a.skip(files, name+": no checksum covers it, and no number is made of it")
		}
	}
}

// attempts checks all attempts.
func (a *audit) attempts() {
	for _, t := range a.index.Trials {
		for i := range t.Attempts {
			a.attempt(t, &t.Attempts[i])
		}
	}
}

// numbers computes the numbers of the page.
func (a *audit) numbers() {
	now := summary.Of(a.manifest, a.index)
	a.page.Cells = now.Cells
	for o, n := range now.Outcomes {
		a.page.Outcomes[string(o)] = n
	}
	for _, t := range a.index.Trials {
		if acc := t.Accepted(); acc != nil {
			a.page.Integrity[string(acc.Result.Integrity)]++
			a.page.Modes[cmp.Or(acc.Result.Mode, "none")]++
		}
	}
}
