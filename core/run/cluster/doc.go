// Package cluster runs the attempts of a run on several machines that see one
// folder. One process, the coordinator, has the plan, the order, the limits, the
// retries and the journal of the run; it is a run.Executor that puts attempts
// into a queue in the run folder. Pilots are processes that take attempts from
// the queue, run them on their own machine, and hand back finished attempts.
//
//	cluster/
//	  queue/<attempt>.json     a job: an attempt that is to be made, until it has a result
//	  leases/<attempt>         who makes it: a hard link to a file of a pilot; never removed
//	  pilots/<pilot>.jsonl     the journal of a pilot, with a numbered line at least every Beat
//	  coordinators/<n>.jsonl   the journal of the n-th coordinator, which pilots follow
//	  log/                     what pilots and their plugins print
//
// A file gets its name by a hard link or by being created, both of which fail if
// the name is taken. Nothing is decided by the time of a file, by a lock, by the
// clock of another machine, or by a rename over a name that is taken. A process
// counts as lost when the watcher has seen no new number for a while, by its own
// clock. A pilot that was lost and comes back finds that its attempts have a
// result, and throws its copy away.
//
// A file system may show another machine's files late. Processes therefore follow
// journals, which they open again for each reading, and do not look up a name
// that another process is about to make: an answer that it does not exist may be
// remembered for a long time. They list the folder instead.
//
// The package must not know a scheduler of a cluster by name. The caller gives it
// one as a Scheduler.
package cluster
