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
// A line of a journal carries a checksum. The line that ends an attempt is on
// the disk before Publish returns. A crash may leave an incomplete last line;
// readers skip it, like any line that fails its checksum, and find an attempt
// whose line is missing by its result.json. Every index is rebuilt from these
// files. Attempts are never deleted or overwritten.
//
// A writer first records its identity in its journal, and records its end last.
// Another process sees it there, on any machine, and by a lock on the local
// disk of this machine.
//
// The package must not know plugins, must not decide what runs (core/run does),
// and must not compute statistics.
package store
