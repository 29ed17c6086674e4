package audit

import (
	"fmt"
	"path"
	"strings"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// DigestsCheck is the name of the check of digests. It depends on what came with the run:
// an archive has tasks, and the folder of a run has none.
const DigestsCheck = "digests"

// digests counts what an attempt used.
func (a *audit) digests(r *record.Result) {
	used := map[string]string{"task " + r.Task: r.TaskDigest}
	for _, p := range r.Plugins {
		used[p.Kind+" "+p.Name] = p.Digest
	}
	for _, b := range r.Bundles {
		used["bundle "+b.Name] = b.Digest
	}
	if r.Image != nil && r.Image.Digest != "" {
		used["image of "+r.Task] = r.Image.Digest
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for of, digest := range used {
		if a.page.Digests[of] == nil {
			a.page.Digests[of] = map[string]int{}
		}
		a.page.Digests[of][digest]++
	}
}

// tasks compares the digests of the tasks that are here with those that attempts
// used.
func (a *audit) tasks(here Tasks) {
	if here == nil {
		a.skip(digests, "tasks: the folder of a run does not have them. An archive has (berth export RUN --to bundle)")
	}
	seen := map[[2]string]bool{}
	for _, t := range a.index.Trials {
		at := [2]string{t.Dataset, t.Task}
		if seen[at] || here == nil || t.TaskDigest == "" {
			continue
		}
		seen[at] = true
		of, known := here[t.Dataset]
		if !known {
			a.skip(digests, fmt.Sprintf("tasks of the dataset %q: this berth does not know their format, or an older one made the archive", t.Dataset))
			continue
		}
		got, there := of[t.Task]
		if there && got == "" {
			a.skip(digests, fmt.Sprintf("tasks of the dataset %q that depend on what is outside of its folder, such as another run", t.Dataset))
			continue
		}
		a.did(digests, 1)
		switch {
		case !there:
			a.problem(digests, path.Join("tasks", store.Name(t.Dataset, 80)), 0, "the task %q is not there", t.Task)
		case got != t.TaskDigest && a.page.Digests["task "+t.Task][got] == 0: // a regrade may have been with other tests
			a.problem(digests, path.Join("tasks", store.Name(t.Dataset, 80)), 0, "the task %q has the digest %s, and the attempts were of %s: its files were changed", t.Task, got, t.TaskDigest)
		}
	}
	names := map[string]string{
		"agent": "plugins", "environment": "plugins", "verifier": "plugins", "bundle": "bundles", "image": "images",
	}
	with := map[string]string{"plugins": "berth plugin list", "bundles": "berth agent list", "images": "those of your engine"}
	for of := range a.page.Digests {
		kind, _, _ := strings.Cut(of, " ")
		if what := names[kind]; what != "" {
			a.skip(digests, fmt.Sprintf("%s: their files are not here. The page has their digests (--json): compare them with %s", what, with[what]))
		}
	}
}
