// Package store is the run folder: the plan of a run, what happened in it, and
// every attempt, in files that survive a kill at any instant, a full disk and
// a shared file system.
//
//	<experiment>-<utc>/
//	  experiment/             files as given
//	  manifest.jsonl          the plan: a line for the run, each cell, each trial; never changed
//	  journal/<writer>.jsonl  one per writing process; appended, never changed
//	  summary.json            counts and tables, made again at the end of each writer
//	  trials/<task>--<cell>--<repetition>-<id8>/attempt-N/
//
// A line of a journal carries a checksum; that of the end of an attempt is on
// the disk before Publish returns. A torn last line is what a crash leaves; it is skipped, as
// is any line that fails its checksum, and an attempt whose line is gone is
// found by its result.json. Nothing is looked up in an index that is not made
// again from these files. Attempts are never deleted or overwritten.
//
// A writer says in its journal who it is before it does anything else, and
// that it ended. A second berth sees the first one there, on whatever machine
// it is, and by a lock on this machine's own disk.
//
// The package must not know plugins, must not decide what is run (core/run
// does), and must not compute statistics.
package store
