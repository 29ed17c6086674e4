// Package house holds the tests about the tree itself: which folder may import
// which, which names the core must not know, how long a file may get. They
// read the import graph and the files, so that a wall stands even where lint
// is not run. Nothing imports this package, and no test of behavior belongs in
// it.
package house
