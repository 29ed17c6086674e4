package sandbox

import (
	"fmt"
	"strings"

	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/recorder"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// Describe lists processes for messages. Text that they chose themselves is
// quoted.
func Describe(ps []host.Process, more []host.Socket) string {
	var names []string
	for i, p := range ps {
		if i == limits.ListedProcesses {
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

func processName(p host.Process) string {
	line := strings.Join(p.Argv, " ")
	if line == "" {
		line = p.Comm
	}
	return fmt.Sprintf("%q (%d)", recorder.Cut(line, 80), p.PID)
}

func addresses(ss []host.Socket) string {
	var out []string
	for i, s := range ss {
		if i == limits.ListedProcesses {
			break
		}
		out = append(out, fmt.Sprintf("%s %s", s.Network, recorder.Cut(s.Address, 80)))
	}
	return strings.Join(out, ", ")
}
