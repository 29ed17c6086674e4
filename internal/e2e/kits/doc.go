// Package kits tries every plugin of this tree, and those of the examples, against
// its conformance kit, with `berth plugin test` as an author would. `make test` tries
// one of each kind, `make test-kits` all.
package kits
