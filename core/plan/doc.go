// Package plan expands an experiment into the trials of a run. It computes
// their ids, and finds invalid tasks, tasks that environments and agents
// refuse, and whatever is missing on this machine.
//
// It creates no sandbox, runs nothing of a task and writes nothing: core/store
// stores a plan, and core/run executes it. It reports every problem, not only
// the first.
package plan
