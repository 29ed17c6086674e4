// Package decide says what an attempt comes to: scores reduced over rounds and
// stages, the outcome, and the integrity. Pure functions of what was seen, so
// that the same rules can be applied again to a stored attempt.
//
// It must not run anything, read a file or a clock, and must not know any
// verifier or format.
package decide
