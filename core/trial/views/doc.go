// Package views makes what leaves the task's folder: for each role the one
// folder of files that it may see, the archives of what is put into a sandbox,
// and the folders that an attempt needs only while it runs. Who sees what is the
// task's data; this package only follows it.
//
// It must not decide an audience, must not read a file that is not named by a
// resource, and follows no link out of the task's folder.
package views

// Names of the files and folders in every view.
const (
	TaskFile        = "task.json"
	InstructionFile = "instruction.md"
	AttemptFolder   = "attempt"
)
