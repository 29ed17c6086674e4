// Package view serves the web pages of `berth view`: runs, their trials and
// attempts, and everything that their folders hold.
//
// All of it may have been written by an agent. Nothing is shown as HTML, no link
// leads anywhere but to these pages, pictures are decoded and written again, and
// every read has a bound.
//
// A person changes a run with the forms of its pages: through the process that runs it
// (package control), and with notes (package notes). The package must not write to a
// run folder otherwise, must change nothing without a form of its pages, and must
// not decide what counts.
package view
