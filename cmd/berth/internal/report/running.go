package report

import (
	"fmt"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/core/store"
)

// running is the word for trials with an attempt in progress, which have no
// outcome yet.
const running = "running"

// runningOf describes an attempt in progress, whose phases so far are given.
func runningOf(at *store.AttemptState, phases []record.Phase) *output.ShowRunning {
	now := time.Now() // of both ages: the phase cannot be older than its attempt
	r := &output.ShowRunning{Attempt: at.Number, Start: at.Began, Age: ageAt(at.Began, now).Seconds()}
	if n := len(phases); n > 0 {
		p := phases[n-1]
		for i := n - 1; i >= 0; i-- { // one that is in progress comes before one that has ended
			if phases[i].End.IsZero() {
				p = phases[i]
				break
			}
		}
		r.Phase, r.PhaseAge = &p, ageAt(p.Start, now).Seconds()
	}
	return r
}

// age is the time since then, in milliseconds.
func age(then time.Time) time.Duration { return ageAt(then, time.Now()) }

// ageAt is the time from then to now, in milliseconds. Clocks of two machines may
// differ.
func ageAt(then, now time.Time) time.Duration {
	return max(0, now.Sub(then)).Round(time.Millisecond)
}

// runningText is the phase of an attempt in progress, and since when it takes.
func runningText(r *output.ShowRunning) string {
	switch {
	case r.Queued:
		return "waits for a pilot"
	case r.Phase == nil:
		return "no phase yet" + onNode(r)
	case r.Worker != nil: // its clock is another one
		return phaseName(r.Phase) + onNode(r)
	}
	return phaseName(r.Phase) + " for " + terminal.Seconds(time.Duration(r.PhaseAge*float64(time.Second)))
}

// onNode says where an attempt is made, if that is not known from its run.
func onNode(r *output.ShowRunning) string {
	if r.Worker == nil {
		return ""
	}
	return " on " + terminal.Clean(r.Worker.Node)
}

// phaseName is the name of a phase with its turn and its stage, where an attempt
// can have several.
func phaseName(p *record.Phase) string {
	name := string(p.Name)
	if p.Turn > 1 {
		name += fmt.Sprintf(" %d", p.Turn)
	}
	if p.Service != "" {
		name += " " + p.Service
	}
	if p.Stage != "" && p.Stage != mainStage {
		name += " of stage " + p.Stage
	}
	return terminal.Clean(name)
}

// mainStage is the stage of tasks that declare none.
const mainStage = "main"

// Running returns the attempt of a trial that is in progress; nil if there is
// none. pilots are those of the run; nil: it has none.
func Running(dir string, x *store.Index, t *store.TrialState, pilots *cluster.State) *output.ShowRunning {
	if !x.UnderWay(t) {
		return nil
	}
	at := &t.Attempts[len(t.Attempts)-1]
	r := runningOf(at, Phases(Folder(dir, t, at.Number), true, &[]string{}))
	if pilots != nil {
		atPilot(r, pilots, t)
	}
	return r
}

// atPilot says who makes an attempt, and what is known of it. Its files are on the
// machine of the pilot until it ends.
func atPilot(r *output.ShowRunning, pilots *cluster.State, t *store.TrialState) {
	w, there := pilots.Working[cluster.AttemptName(t.ID, r.Attempt)]
	if !there {
		r.Queued = true
		return
	}
	r.Worker = &w.Worker
	if w.Phase != "" {
		r.Phase = &record.Phase{Name: w.Phase, Stage: w.Stage, Turn: w.Turn}
	}
}

// Pilots returns what is known of the pilots of a run; nil if it has none.
func Pilots(dir string) *cluster.State {
	s, err := cluster.Read(dir)
	if err != nil {
		return &cluster.State{} // then it is not known where attempts are made
	}
	return s
}
