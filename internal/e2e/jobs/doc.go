// Package jobs tries the files of examples/cluster, with which other schedulers than
// those that Berth knows start pilots: as far as this can be done without such a
// scheduler.
package jobs
