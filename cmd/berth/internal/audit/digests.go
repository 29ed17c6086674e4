package audit

import (
	"fmt"
	"path"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// DigestsCheck is the name of the check of digests. It depends on what came with the run:
// an archive has tasks, and the folder of a run has none.
const DigestsCheck = "digests"

// taskUsed notes the content of the task that an attempt was of.
func (a *audit) taskUsed(r *record.Result) {
	a.used[r.Task+" "+r.TaskDigest] = true
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
			a.skip(digests, fmt.Sprintf("tasks of the dataset %q: this berth does not know their format", t.Dataset))
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
		case got != t.TaskDigest && !a.used[t.Task+" "+got]: // a regrade may have been with other tests
			a.problem(digests, path.Join("tasks", store.Name(t.Dataset, 80)), 0, "the task %q has the digest %s, and the attempts were of %s: its files were changed", t.Task, got, t.TaskDigest)
		}
	}
	a.skip(digests, "plugins, bundles and images: their files are not here. berth plugin list and berth agent list print the digests of yours")
}
