// Package run carries out a plan: it decides which trial is run when, how many
// at the same time, which attempt is repeated and which is not, what a resumed
// run still has to do, and when nothing more may begin.
//
// It must not know what an attempt does (core/trial), nor where it is written
// down (core/store), nor how progress looks (cmd/berth/internal/cli). One trial's failure
// never ends a run; a run folder that cannot be written does.
package run
