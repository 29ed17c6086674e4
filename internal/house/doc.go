// Package house holds the tests of the tree itself: which folder may import
// which, which names the core must not know, how long a file may be. They read
// the import graph and the files, so that the rules hold even where lint is not
// run. Nothing imports this package, and tests of behaviour do not belong in
// it.
package house
