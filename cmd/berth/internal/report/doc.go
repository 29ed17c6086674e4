// Package report finds runs, trials and attempts by what a user calls them, reads
// them, and says them as text or as the types of package answer.
//
// It must not write to a run folder, and must not decide what counts.
package report
