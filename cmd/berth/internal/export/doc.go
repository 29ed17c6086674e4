// Package export writes the results of a run for other programs: as a table with
// a row for each attempt, or as a folder of trajectories.
//
// It reads run folders, which others may have made, and changes none. The
// same run always gives the same bytes.
package export
