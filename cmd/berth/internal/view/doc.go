// Package view serves the web pages of `berth view`: runs, their trials and
// attempts, and everything that their folders hold.
//
// All of it may have been written by an agent. Nothing is shown as HTML, no link
// leads anywhere but to these pages, pictures are decoded and written again, and
// every read has a bound. The package must not write to a run folder, and must not
// decide what counts.
package view
