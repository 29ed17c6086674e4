// Package report finds runs, trials and attempts by the names that a user
// gives, reads them, and prints them as text or returns them as the types of
// package output.
//
// It must not write to a run folder, and must not decide what counts.
package report
