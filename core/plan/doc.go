// Package plan makes of an experiment and its tasks the list of trials that a
// run consists of: which there are and what their ids are, which tasks are
// invalid, what the environments and agents would refuse, what is missing on
// this machine, and what it can cost at most.
//
// It must not make a sandbox, must not run anything of a task, and writes
// nothing: core/store keeps a plan, core/run carries it out. It reports every
// problem, not only the first.
package plan
