package nodecheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/output"
)

// Needs is what the experiment wants of its nodes.
type Needs struct {
	Environments []string // plugins of its cells
	Relayed      bool     // some model is asked through the submitting machine
}

// leastScratch is the free space below which a scratch folder is named, in MiB.
const leastScratch = 1024

// Findings says what was seen, for people. host is the submitting machine.
func (s *Seen) Findings(host string, want *Needs, printed []byte) *output.DoctorCluster {
	d := &output.DoctorCluster{Host: host, Job: s.Job, Checks: []output.DoctorCheck{}, Environments: []output.DoctorEnvironment{}}
	f := findings{d}
	if s.Report == nil {
		text := s.Failed
		if lines := strings.TrimSpace(string(printed[:min(len(printed), 2000)])); lines != "" {
			text += "; it printed: " + lines
		}
		f.bad("job", text, noReport(s, printed))
		return d
	}
	r := s.Report
	d.Node = r.Host
	f.good("job", fmt.Sprintf("job %s ran on %s, and both see the run folder", s.Job, r.Host), "")
	if r.Problem != "" {
		f.bad("job", r.Problem, "ask your cluster administrator, or start pilots yourself with executor \"pilots\"")
	}
	f.programs(r)
	f.scratch(r)
	f.relay(host, r, want)
	f.environments(r, want)
	d.Ready = !slices.ContainsFunc(d.Checks, func(c output.DoctorCheck) bool { return !c.OK })
	return d
}

func noReport(s *Seen, printed []byte) string {
	switch {
	case strings.HasPrefix(s.Failed, "the job did not start"):
		return "wait for a free node, or choose another partition"
	case len(printed) > 0:
		return "fix what the job printed: the program, setup and the folder must work on the nodes, within the limits of the job"
	default:
		return "start in a folder that the nodes see under the same path and can write to, or name one with --runs"
	}
}

type findings struct{ d *output.DoctorCluster }

// good adds a check that passed; with a remedy it is a note.
func (f findings) good(name, text, remedy string) {
	f.d.Checks = append(f.d.Checks, output.DoctorCheck{Name: name, OK: true, Text: text, Remedy: remedy})
}

func (f findings) bad(name, text, remedy string) {
	f.d.Checks = append(f.d.Checks, output.DoctorCheck{Name: name, Text: text, Remedy: remedy})
}

func (f findings) programs(r *Report) {
	same := "install Berth in a folder that the nodes see, and use the same files on all machines"
	if len(r.Missing) > 0 {
		f.bad("programs and tasks", strings.Join(r.Missing, "; "), "put them into a folder that the nodes see under the same path")
	}
	if len(r.Differ) > 0 {
		f.bad("programs", "other files on the node: "+strings.Join(r.Differ, ", "), same)
	}
	if len(r.Missing)+len(r.Differ) == 0 {
		f.good("programs and tasks", "the node has the same", "")
	}
}

func (f findings) scratch(r *Report) {
	c := &r.Scratch
	text := fmt.Sprintf("%s, %d MiB free", c.Dir, c.Free)
	remedy := "set scratch in the executor block to a folder on a disk of the nodes"
	switch {
	case c.Failed != "":
		f.bad("scratch", c.Failed, remedy)
	case c.Shared:
		f.bad("scratch", text+"; this machine sees it too, so it is shared", remedy)
	case c.Free < leastScratch:
		f.good("scratch", text, "attempts may need more room: set scratch to a larger disk")
	default:
		f.good("scratch", text, "")
	}
}

func (f findings) relay(host string, r *Report, want *Needs) {
	switch {
	case r.Relay.Failed == "":
		f.good("connection", fmt.Sprintf("the node reaches the relay of %s at %s", host, r.Relay.Address), "")
	case want.Relayed:
		f.bad("connection", fmt.Sprintf("the node does not reach the relay of %s, through which it asks the models: %s", host, r.Relay.Failed), "start the run on a machine that the nodes reach, or choose an address or a port that they reach with --relay-address")
	default:
		f.good("connection", fmt.Sprintf("the node does not reach %s: %s", host, r.Relay.Failed), "the run needs no such connection: its nodes ask the models themselves")
	}
}

func (f findings) environments(r *Report, want *Needs) {
	if r.Doctor == nil {
		return
	}
	for _, c := range r.Doctor.Checks {
		c.Name = "on the node: " + c.Name
		if strings.HasPrefix(c.Name, "on the node: plugin") {
			c.OK = true // what the experiment needs is compared by itself
		}
		f.d.Checks = append(f.d.Checks, c)
	}
	f.d.Environments = r.Doctor.Environments
	for _, name := range want.Environments {
		i := slices.IndexFunc(f.d.Environments, func(e output.DoctorEnvironment) bool { return e.Name == name })
		switch {
		case i < 0:
			f.bad("environment "+name, "the node does not have it", "install its plugin in a folder that the nodes see")
		case !f.d.Environments[i].OK:
			f.bad("environment "+name, "the experiment uses it, and it cannot make sandboxes on the node", "follow what it says below, or use another environment or partition")
		}
	}
}
