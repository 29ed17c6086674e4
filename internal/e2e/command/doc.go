// Package command holds the tests of the built program from the view of its
// users: commands, exit codes, output, and what is left after kills. It must
// not look into the program; the behaviour of one package is tested in that
// package.
package command
