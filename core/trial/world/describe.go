package world

import (
	"fmt"
	"strings"

	inside "github.com/berth-eval/berth/core/sandbox"
	"github.com/berth-eval/berth/core/trial/bound"
	"github.com/berth-eval/berth/core/trial/scribe"
)

// Describe lists processes for people. What they say of themselves is quoted.
func Describe(ps []inside.Process, more []inside.Socket) string {
	var names []string
	for i, p := range ps {
		if i == bound.ListedProcesses {
			names = append(names, fmt.Sprintf("%d more", len(ps)-i))
			break
		}
		n := processName(p)
		if len(p.Listening) > 0 {
			n += " on " + addresses(p.Listening)
		}
		names = append(names, n)
	}
	if len(more) > 0 {
		names = append(names, "something on "+addresses(more))
	}
	return strings.Join(names, ", ")
}

func processName(p inside.Process) string {
	line := strings.Join(p.Argv, " ")
	if line == "" {
		line = p.Comm
	}
	return fmt.Sprintf("%q (%d)", scribe.Cut(line, 80), p.PID)
}

func addresses(ss []inside.Socket) string {
	var out []string
	for i, s := range ss {
		if i == bound.ListedProcesses {
			break
		}
		out = append(out, fmt.Sprintf("%s %s", s.Network, scribe.Cut(s.Address, 80)))
	}
	return strings.Join(out, ", ")
}
