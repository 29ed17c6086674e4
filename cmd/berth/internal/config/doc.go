// Package config reads an experiment: HCL in, plain Go values and diagnostics
// out. It parses every file, evaluates variables, locals and functions, expands
// the matrix, and resolves the blocks of each cell, with the bodies of `config`
// blocks decoded by the schemas that plugins sent. Every problem is reported at
// once, with its place in the user's file.
//
// A secret is unknown while an experiment is loaded, and what depends on it is
// marked and becomes a secret of a [cell.Text] or of [cell.Values]. Only their
// Reveal reads it, by evaluating the expression again.
//
// What must not be here: names of engines, agents, providers or task formats,
// anything that starts a process, and any knowledge of tasks. Reading files is
// limited to the experiment's own folder (see [Options]).
package config
