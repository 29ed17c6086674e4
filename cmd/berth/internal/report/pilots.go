package report

import (
	"slices"
	"strconv"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/core/store"
)

// pilotsOf returns the pilots of a run, the oldest first, and for what jobs of
// pilots wait.
func pilotsOf(s *cluster.State, x *store.Index) (all []output.ShowPilot, waits string) {
	if s == nil {
		return nil, ""
	}
	for i := range s.Pilots {
		p := &s.Pilots[i]
		state := output.PilotWorks
		switch {
		case p.Ended:
			state = output.PilotEnded
		case p.Lost:
			state = output.PilotLost
		case x.Writing() == nil:
			state = output.PilotSilent
		}
		all = append(all, output.ShowPilot{
			Worker: p.Worker, State: state, Why: p.Why, Began: p.Began, Heard: p.Last, InFlight: p.InFlight, Running: p.Running,
			Done: p.Published,
		})
	}
	if x.Writing() != nil {
		waits = s.Waits
	}
	return all, waits
}

// maxPilots is how many rows the table of pilots has at most; --json has all.
const maxPilots = 50

// pilotTable prints the pilots of a run: those that work first.
func pilotTable(p *terminal.Printer, pilots []output.ShowPilot, waits string) {
	t := terminal.Table{Head: []string{"pilot", "node", "job", "state", "running", "done", "note"}, Right: []bool{4: true, 5: true, 6: false}}
	working := func(o output.ShowPilot) bool { return o.State != output.PilotEnded }
	pilots = append(slices.DeleteFunc(slices.Clone(pilots), func(o output.ShowPilot) bool { return !working(o) }), slices.DeleteFunc(slices.Clone(pilots), working)...)
	for i := range pilots[:min(len(pilots), maxPilots)] {
		o := &pilots[i]
		t.Row(terminal.Clean(o.Pilot), terminal.Clean(o.Node), terminal.Clean(o.Job), string(o.State), strconv.Itoa(o.Running), strconv.Itoa(o.Done), terminal.Clean(pilotNote(o)))
	}
	if t.Len() > 0 {
		p.Printf("\n")
		t.Write(p)
	}
	if left := len(pilots) - maxPilots; left > 0 {
		p.Printf("… and %d more; --json has all of them\n", left)
	}
	if waits != "" {
		p.Printf("%s\n", terminal.Clean(waits))
	}
}

// pilotNote says why a pilot ended, or since when it has been silent.
func pilotNote(o *output.ShowPilot) string {
	if o.State == output.PilotLost || o.State == output.PilotSilent {
		return "last heard at " + o.Heard.Local().Format(time.TimeOnly)
	}
	return o.Why
}
