// Package plan expands an experiment into the trials of a run: their ids, which
// tasks are invalid, what environments and agents refuse, and what is missing on
// this machine.
//
// It creates no sandbox, runs nothing of a task and writes nothing: core/store
// keeps a plan, and core/run executes it. It reports every problem, not only the
// first.
package plan
