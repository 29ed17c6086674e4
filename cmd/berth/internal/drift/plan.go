// Package drift compares a stored run with what would continue with it now: the
// plan, the models' addresses and keys, the files of the experiment, and who can
// write to the run folder. The command line decides what a difference means.
package drift

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/core/store"
)

// Change is something that differs between a stored plan and one made now,
// and that could change results.
type Change struct {
	Where  string `json:"where"`          // a cell, a task, or empty: the run
	What   string `json:"what"`           // a path such as agent.config.max_turns
	Before string `json:"before"`         // JSON, or empty: it was not there
	After  string `json:"after"`          // the same
	Task   string `json:"task,omitempty"` // the dataset and the task, DATASET/NAME, whose content changed, or empty

	adds bool // it adds trials, and changes none
}

// String is the change on one line.
func (c Change) String() string {
	s := c.What
	if c.Where != "" {
		s = c.Where + ": " + s
	}
	switch {
	case c.Before == "":
		return fmt.Sprintf("%s: added %s", s, c.After)
	case c.After == "":
		return fmt.Sprintf("%s: removed %s", s, c.Before)
	default:
		return fmt.Sprintf("%s: %s → %s", s, c.Before, c.After)
	}
}

// maxChanges bounds a diff: who changed everything need not read all of it.
const maxChanges = 50

// ChangedPlan lists the differences between a stored plan and one made now that
// could change results. It is empty if the plan made now has every trial of the
// stored one; what it has besides is in [Added]. Limits of the run, names of blocks
// and prices cannot change results and are not compared.
func ChangedPlan(before, after *store.Manifest) []Change {
	if containsTrials(after.Trials, before.Trials) {
		return nil
	}
	changes := slices.DeleteFunc(differences(before, after), func(c Change) bool { return c.adds })
	if len(changes) == 0 {
		changes = append(changes, Change{What: "trials", Before: strconv.Itoa(len(before.Trials)), After: strconv.Itoa(len(after.Trials))})
	}
	return most(changes)
}

// Added lists what a plan made now has that a stored one does not have: cells,
// tasks, datasets, repetitions. It is empty if both have the same trials.
func Added(before, after *store.Manifest) []Change {
	if containsTrials(before.Trials, after.Trials) {
		return nil
	}
	return most(slices.DeleteFunc(differences(before, after), func(c Change) bool { return !c.adds }))
}

func differences(before, after *store.Manifest) []Change {
	changes := append(diffCells(before, after), diffTasks(before, after)...)
	if r, now := repeats(before), repeats(after); r != now {
		changes = append(changes, Change{What: "repeat", Before: strconv.Itoa(r), After: strconv.Itoa(now), adds: now > r})
	}
	return changes
}

// most shortens a list of changes.
func most(changes []Change) []Change {
	if n := len(changes); n > maxChanges {
		changes = append(changes[:maxChanges], Change{What: fmt.Sprintf("and %d more changes", n-maxChanges), Before: "…", After: "…"})
	}
	return changes
}

// containsTrials reports whether all trials of b are in a.
func containsTrials(a, b []store.Trial) bool {
	ids := make(map[string]bool, len(a))
	for i := range a {
		ids[a[i].ID] = true
	}
	return !slices.ContainsFunc(b, func(t store.Trial) bool { return !ids[t.ID] })
}

func repeats(m *store.Manifest) int {
	most := 0
	for i := range m.Trials {
		most = max(most, m.Trials[i].Repetition)
	}
	return most
}

func cellsByKey(m *store.Manifest) map[string]store.Cell {
	cells := make(map[string]store.Cell, len(m.Cells))
	for _, c := range m.Cells {
		cells[c.Key] = c
	}
	return cells
}

// bothKeys are the keys of two maps: those of the first, sorted, then the others.
func bothKeys[V any](a, b map[string]V) []string {
	keys := slices.Sorted(maps.Keys(a))
	for _, k := range slices.Sorted(maps.Keys(b)) {
		if _, known := a[k]; !known {
			keys = append(keys, k)
		}
	}
	return keys
}

func diffCells(before, after *store.Manifest) []Change {
	old, now := cellsByKey(before), cellsByKey(after)
	var changes []Change
	for _, key := range bothKeys(old, now) {
		a, inOld := old[key]
		b, inNow := now[key]
		switch {
		case !inNow:
			changes = append(changes, Change{What: "cell", Before: cellName(key)})
		case !inOld:
			changes = append(changes, Change{What: "cell", After: cellName(key), adds: true})
		default:
			changes = append(changes, diffIdentities(key, a.Identity, b.Identity)...)
		}
	}
	return changes
}

// diffIdentities compares a cell's identity for each dataset, and says what is
// the same for all datasets once.
func diffIdentities(key string, a, b map[string]json.RawMessage) []Change {
	where := "cell " + cellName(key)
	var changes []Change
	for _, d := range bothKeys(a, b) {
		switch {
		case a[d] == nil:
			changes = append(changes, Change{Where: where, What: "dataset", After: strconv.Quote(d), adds: true})
		case b[d] == nil:
			changes = append(changes, Change{Where: where, What: "dataset", Before: strconv.Quote(d)})
		default:
			for _, c := range diffJSON(where, "", tree(a[d]), tree(b[d])) {
				if !slices.Contains(changes, c) {
					changes = append(changes, c)
				}
			}
		}
	}
	return changes
}

func cellName(key string) string {
	if key == "" {
		return "(only one)"
	}
	return key
}

func tree(raw json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw)
	}
	return v
}

// diffJSON lists the paths at which two JSON values differ.
func diffJSON(where, path string, a, b any) []Change {
	ma, okA := a.(map[string]any)
	mb, okB := b.(map[string]any)
	if okA && okB {
		var changes []Change
		for _, k := range bothKeys(ma, mb) {
			p := k
			if path != "" {
				p = path + "." + k
			}
			changes = append(changes, diffJSON(where, p, ma[k], mb[k])...)
		}
		return changes
	}
	la, okA := a.([]any)
	lb, okB := b.([]any)
	if okA && okB && len(la) == len(lb) {
		var changes []Change
		for i := range la {
			changes = append(changes, diffJSON(where, fmt.Sprintf("%s[%d]", path, i), la[i], lb[i])...)
		}
		return changes
	}
	before, after := text(a), text(b)
	if before == after {
		return nil
	}
	return []Change{{Where: where, What: path, Before: before, After: after}}
}

func text(v any) string {
	if v == nil {
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// diffTasks compares the tasks of two plans by dataset and name.
func diffTasks(before, after *store.Manifest) []Change {
	old, now := digests(before), digests(after)
	var changes []Change
	for _, t := range bothKeys(old, now) {
		a, b := old[t], now[t]
		switch a {
		case b:
		case "":
			changes = append(changes, Change{What: "task", After: t, adds: true})
		default:
			changes = append(changes, Change{Where: "task " + t, What: "content", Before: a, After: b, Task: t})
		}
	}
	return changes
}

// digests are the tasks of a plan with what they hold.
func digests(m *store.Manifest) map[string]string {
	out := map[string]string{}
	for i := range m.Trials {
		t := &m.Trials[i]
		d := t.TaskDigest
		if t.Invalid != "" {
			d = "invalid"
		}
		out[t.Dataset+"/"+t.Task] = d
	}
	return out
}

// ChangedModels lists the models that a stored plan reaches at another address, or
// with another key, than the plan made now. This changes no stored result, but it
// may send a key, and all that an agent says, to a stranger.
func ChangedModels(before, after *store.Manifest) []Change {
	old, now := cellsByKey(before), cellsByKey(after)
	var changes []Change
	for _, key := range slices.Sorted(maps.Keys(old)) { // those of an added cell are in the experiment that the user names
		changes = append(changes, diffJSON("cell "+cellName(key), "models", modelTree(old[key]), modelTree(now[key]))...)
	}
	return changes
}

func modelTree(c store.Cell) any {
	models := maps.Clone(c.Models)
	if models == nil {
		models = map[string]store.Endpoint{}
	}
	b, err := json.Marshal(models)
	if err != nil {
		return nil // strings always marshal
	}
	return tree(b)
}

// ChangedWork lists the differences between a stored plan and one made now that
// concern what agents did: everything but verifiers, the rule of success and the
// content of tasks, of which only the instruction and the image are compared, when
// an attempt is verified again.
func ChangedWork(before, after *store.Manifest) []Change {
	return most(slices.DeleteFunc(differences(before, after), func(c Change) bool {
		verification := strings.HasPrefix(c.What, "verifiers") || strings.HasPrefix(c.What, "per_trial.verifier_time") ||
			strings.HasPrefix(c.What, "datasets[0].success") || strings.HasPrefix(c.What, "datasets[0].verify") || strings.HasPrefix(c.What, "datasets[0].system")
		return c.adds || c.Task != "" || verification || c.What == "repeat" || c.What == "cell"
	}))
}
