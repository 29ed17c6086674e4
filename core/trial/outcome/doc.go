// Package outcome says what an attempt comes to: who an error is attributed to,
// scores reduced over rounds and stages, the outcome, and the integrity. The
// attribution nearest to where an error happened stands. The decisions are pure
// functions of what was seen, so that they can be repeated on a stored attempt.
//
// It must not run anything, read a file or a clock, or know a verifier or a
// format by name.
package outcome
