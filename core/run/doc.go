// Package run executes a run. It prepares this machine, decides when each trial
// runs and how many run at the same time, which attempts are repeated, what a
// resumed run still has to do and when to stop, and removes what was left
// behind. Execute does all of that; the other functions are for callers that
// need a part, such as pulling images before a run.
//
// It must not know what an attempt does (core/trial), how it is recorded
// (core/store), or how progress is displayed. A failed trial never ends a run;
// a run folder that cannot be written does.
package run
