// Package faults holds the tests of the faults that Berth promises to survive:
// the real binaries, on real tasks, in real sandboxes, killed, starved and lied
// to. Where that is possible a test first shows the damage without the guard.
//
// Nothing imports this package. What a single package can show alone is tested
// there; what the program prints is tested one folder up.
package faults
