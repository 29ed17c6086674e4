// Package faults holds the tests of the faults that Berth promises to survive.
// They run the real programs on real tasks in real sandboxes, and kill them,
// fill their disks and give them false data. Where possible, a test first shows
// the damage without the protection.
//
// Nothing imports this package. What can be tested in a single package is
// tested there; the output of the commands is tested in internal/e2e/command.
package faults
