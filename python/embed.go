// Package python holds the Python module for plugin authors, so that a program
// can write a copy of it beside a new plugin.
//
// The module itself is in berth_plugin/; no Go code belongs here.
package python

import "embed"

// Module is the folder berth_plugin: its Python files and the description of
// the contracts.
//
//go:embed berth_plugin/*.py berth_plugin/contract.binpb berth_plugin/py.typed
var Module embed.FS
