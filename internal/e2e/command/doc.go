// Package command holds the tests of the built program as its users meet it:
// commands, exit codes, what they print, and what is left after kills. It must
// not look into the program; a behavior of one package is tested beside it.
package command
