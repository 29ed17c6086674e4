// Package outcome decides the result of an attempt: the attribution of errors,
// scores reduced over rounds and stages, the outcome, and the integrity. The
// attribution closest to the origin of an error counts. The decisions are pure
// functions of recorded facts, so that they can be repeated on a stored
// attempt.
//
// It must not run anything, read a file or a clock, or know a verifier or a
// format by name.
package outcome
