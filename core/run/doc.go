// Package run executes a run: it prepares this machine, decides which trial is
// run when and how many at the same time, which attempt is repeated, what a
// resumed run still has to do and when nothing more may begin, and removes what
// was left. Execute is all of that; the other functions are for those who want
// a part, such as pulling images ahead of a run.
//
// It must not know what an attempt does (core/trial), how it is written down
// (core/store), or how progress looks. One trial's failure never ends a run; a
// run folder that cannot be written does.
package run
