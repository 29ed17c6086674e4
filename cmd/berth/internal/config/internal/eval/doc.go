// Package eval evaluates the expressions of an experiment: variables, locals,
// references to blocks, the matrix of a cell, and functions. It bounds what an
// expression can cost, reads files only where it is allowed to, and keeps
// secrets out of values until they are asked for.
//
// It knows no block of an experiment, and prints nothing.
package eval
