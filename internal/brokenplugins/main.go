// Command brokenplugins serves plugins that each break their contract in one
// way, chosen by the name of the program. They test the conformance kits: a kit
// that accepts one of them misses a fault.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-eval/berth/plugins"
)

// table is plugins by name.
type table map[string]struct {
	how  string // how it is broken
	make func(plugins.Info) plugins.Plugin
}

func main() {
	name := strings.TrimPrefix(filepath.Base(os.Args[0]), plugins.ProgramPrefix)
	info := plugins.Info{Name: name, Version: "1.0.0", Doc: "Broken in one way, for trying the conformance kits."}
	if kind, ok := raw[name]; ok {
		serveRaw(info, kind)
		return
	}
	all := table{}
	for _, t := range []table{agents, verifiers, environments, surfaces} {
		maps.Copy(all, t)
	}
	p, ok := all[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "brokenplugins: no plugin is broken as %q\n", name)
		os.Exit(2)
	}
	plugins.Serve(p.make(info))
}
