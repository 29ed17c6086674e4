// Package views makes everything that leaves the task's folder: for each role
// the one folder of files that it may see, the archives of the files for a
// sandbox, and the folders that an attempt needs only while it runs. The task's
// data says who may see what; this package only follows it.
//
// It must not decide who sees a file, must not read files that no resource
// names, and follows no link out of the task's folder.
package views

// Names of the files and folders in every view.
const (
	TaskFile        = "task.json"
	InstructionFile = "instruction.md"
	AttemptFolder   = "attempt"
)
