package feasible

import (
	"fmt"
	"slices"

	"github.com/berth-eval/berth/plugins/task"
)

// ask is the network access that one part of a task asks for.
type ask struct {
	who string
	task.Network
}

func asks(t *task.Task) []ask {
	out := []ask{{"the environment", t.Environment.Network}}
	for i := range t.Stages {
		s := &t.Stages[i]
		out = append(out, ask{"the agent of stage " + s.Name, t.NetworkOf(&s.Agent)}, ask{"the verifier of stage " + s.Name, t.NetworkOf(&s.Verify)})
	}
	for i := range out {
		if out[i].Mode == "" {
			out[i].Mode = task.NetworkNone
		}
	}
	return out
}

// noNetwork is the end of a refusal.
const noNetwork = "network = \"none\" in the environment block runs the task without any, and marks the result as modified"

// Network decides how the sandbox is made, from what the task asks for and what
// the experiment grants; a nil granted grants what the task asks for. modified
// says what the task gets less of. Granting nothing is always possible and
// marks the result; granting only a part is refused.
//
// With NetworkAllow the sandbox has no network, and Reach says which hosts each
// phase may reach through the core's proxy. This covers lists, phases that
// differ, and a public network that a task asks for. A sandbox on an engine's
// network can also reach this machine, its neighbours and private networks, so
// only an experiment can grant that, with NetworkPublic.
func Network(t *task.Task, granted *task.Network) (given task.Network, modified []string, err error) {
	return network(asks(t), granted)
}

func network(all []ask, granted *task.Network) (given task.Network, modified []string, err error) {
	if granted != nil && granted.Mode == task.NetworkNone {
		for _, a := range all {
			if a.Mode != task.NetworkNone {
				modified = append(modified, fmt.Sprintf("network of %s: none instead of %s", a.who, a.Mode))
			}
		}
		return task.Network{Mode: task.NetworkNone}, modified, nil
	}
	given = task.Network{Mode: all[0].Mode}
	for _, a := range all {
		if err = permitted(a, granted); err != nil {
			return task.Network{}, nil, err
		}
		if a.Mode != given.Mode {
			given.Mode = task.NetworkAllow
		}
		for _, h := range a.Allow {
			if !slices.Contains(given.Allow, h) {
				given.Allow = append(given.Allow, h)
			}
		}
	}
	if given.Mode == task.NetworkPublic && granted == nil {
		given.Mode = task.NetworkAllow
	}
	return given, nil, nil
}

// Public reports whether the agent of a stage may reach any public host, in a
// sandbox made with that mode. Network has accepted the task.
func Public(t *task.Task, s *task.Stage, made task.NetworkMode) bool {
	return made != task.NetworkNone && Reach(t, s).Turn.Any
}

// permitted checks whether the experiment grants what a part of the task asks
// for. Only the user may allow an address of this machine or of a private
// network, because a task is not trusted with the services there.
func permitted(a ask, granted *task.Network) error {
	asked, err := a.Hosts()
	if err != nil {
		return fmt.Errorf("%s: %w", a.who, err)
	}
	given := task.Hosts{Any: true}
	if granted != nil {
		if given, err = granted.Hosts(); err != nil {
			return err
		}
	}
	if given.Any {
		if in := asked.Inner(); !in.Empty() {
			return fmt.Errorf("%s asks for %s, which is on this machine or in a private network: name it in allow_hosts with network = \"allow\" "+
				"in the environment block, together with the other hosts of the task, or %s", a.who, in, noNetwork)
		}
	}
	if !given.Covers(asked) {
		return fmt.Errorf("%s asks for %s (%s) and the experiment grants %s (%s): grant what the task asks; %s",
			a.who, a.Mode, asked, granted.Mode, given, noNetwork)
	}
	return nil
}

// Reachable says which hosts may be reached in each step of a stage.
type Reachable struct {
	Setup   task.Hosts // and before the first stage
	Turn    task.Hosts // and in all other steps between setup and settle
	Settle  task.Hosts
	Collect task.Hosts
	Verify  task.Hosts
}

// Reach returns the hosts that the steps of a stage may reach if the sandbox
// was made with NetworkAllow. Processes that an agent left running reach no
// more than the agent did, and nothing while files are collected. Network has
// accepted the task.
func Reach(t *task.Task, s *task.Stage) Reachable {
	of := func(n task.Network) task.Hosts {
		r, err := n.Hosts()
		if err != nil {
			return task.Hosts{} // nothing
		}
		return r
	}
	turn := of(t.NetworkOf(&s.Agent))
	return Reachable{Setup: of(t.Environment.Network), Turn: turn, Settle: turn, Verify: of(t.NetworkOf(&s.Verify))}
}
