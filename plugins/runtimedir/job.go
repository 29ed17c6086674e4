package runtimedir

// Two variables tell an environment which of its own things belong to one job of a
// scheduler. Several jobs of one user may be on one machine, and must not disturb
// each other.
const (
	// ScratchEnv names folders of this user on disks of this machine, separated by
	// colons. What belongs to a job is in the first one. What dead jobs left in them
	// may be removed. A job lives as long as the file of [JobLock] is locked.
	ScratchEnv = "BERTH_SCRATCH"
	// JobEnv names the job of this process. Empty: it is in none. [NoJob]: it only
	// removes what dead jobs left.
	JobEnv = "BERTH_JOB"
)

// NoJob is a value of JobEnv.
const NoJob = "-"

// JobLock returns the name of the file in a folder of ScratchEnv that a living job
// keeps locked.
func JobLock(job string) string { return "job-" + job + ".lock" }
