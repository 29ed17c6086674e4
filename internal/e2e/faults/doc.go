// Package faults holds the tests of the faults that Berth promises to survive.
// They run the real binaries on real tasks in real sandboxes, which are killed,
// starved and given false data. Where possible a test first shows the damage
// without the protection.
//
// Nothing imports this package. What a single package can show alone is tested
// there; what the program prints is tested one folder up.
package faults
