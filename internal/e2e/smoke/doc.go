// Package smoke runs the quickstart end to end in every environment that this machine
// has, and one trial on each surface. It is the part of the end-to-end tests that
// `make test` includes.
package smoke
