package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/recorder"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/system"
	"github.com/berth-eval/berth/plugins/task"
)

// mark has the files of the system listed before the agent's first command. Before
// those of a further stage it looks for what has changed since the list before: a
// change by the tests or the healthcheck of an earlier stage may be the agent's work,
// too. An agent without a shell cannot change anything, so that nothing is listed.
func (s *stage) mark(ctx context.Context) error {
	a, p := s.a, s.phase(record.PhaseSetup, record.ByEnvironment)
	if !a.needs.Shell && !a.needs.Terminal {
		return nil
	}
	if !a.marked {
		return a.listSystem(ctx, p)
	}
	if s.mode == task.ModeSeparate || !s.inSandbox(s.atEnd()) {
		return nil // its tests do not use this system
	}
	now, err := a.sandbox.Changes(ctx)
	if err != nil {
		s.unknownChanges(p, err)
	}
	s.systemChanged(p, now, "before this stage")
	return nil
}

// listSystem has the files of the system listed.
func (a *attempt) listSystem(ctx context.Context, p record.Phase) error {
	c := system.Commands{Dir: a.sandbox.Dir, Work: a.in.Cell.Work}
	for i := range a.task.Stages {
		s := &stage{a: a, i: i, task: &a.task.Stages[i]}
		of, err := s.commands(s.task.Verifiers)
		if err != nil {
			continue // the request of the verifier fails for the same reason
		}
		c.Env, c.Programs = append(c.Env, of.Env...), append(c.Programs, of.Programs...)
	}
	a.marked, a.markedAt = true, time.Now()
	err := a.sandbox.Mark(ctx, c, a.sandbox.Asked)
	if errors.Is(err, fault.ErrTooLarge) {
		a.newStage(0).unknownChanges(p, err)
		return nil
	}
	return err
}

// changes looks for changes of the system during the agent's turn, and for services
// that the agent could have changed. It records the first, apart from those in some
// folders.
func (s *stage) changes(ctx context.Context, p record.Phase, without ...string) host.Changed {
	if !s.a.marked {
		return host.Changed{}
	}
	now, err := s.a.sandbox.Changes(ctx, append(s.fresh(), without...)...)
	if err != nil {
		s.unknownChanges(p, err)
	}
	return now
}

// systemChanged records that files of the system have changed.
func (s *stage) systemChanged(p record.Phase, now host.Changed, when string) {
	if len(now.Files) > 0 {
		s.a.recorder.Exposed(p, "system_changed", "files of the system, which the verification may use, changed %s: %s", when, listed(now.Files, now.More))
	}
}

// setAside removes links of the agent that lead into the folders of the tests: what they
// lead to is there only when the tests run.
func (s *stage) setAside(ctx context.Context, p record.Phase) error {
	if !s.a.marked || s.graded != s.a.sandbox || len(s.fresh()) == 0 {
		return nil
	}
	gone, err := host.SetAside(ctx, s.graded.Core(), s.a.markedAt, s.fresh())
	if errors.Is(err, host.ErrUnfit) {
		s.a.recorder.Exposed(p, "links_unknown", "cannot tell which links lead into the folders of the tests: %s", err)
		return nil
	}
	s.aside(p, gone)
	return err
}

// aside records what was set aside.
func (s *stage) aside(p record.Phase, n system.Names) {
	var names []string
	for _, name := range n.Paths {
		names = append(names, string(name))
	}
	if len(names) > 0 {
		s.a.recorder.Note(p, "set_aside", "what the agent left leads into folders of the verifier, or stands in their place, and is not there any more: %s", listed(names, n.More))
	}
}

const inTurn = "during the agent's turn"

// commands describes the commands of the verification.
func (s *stage) commands(uses []task.VerifierUse) (system.Commands, error) {
	a := s.a
	env, err := s.task.Verify.Env.Resolve(a.in.LookupEnv)
	if err != nil {
		return system.Commands{}, err
	}
	c := system.Commands{Dir: a.sandbox.Dir, Work: a.in.Cell.Work}
	for _, u := range uses {
		env = sandbox.Merge(env, cell.Strings(a.in.Cell.Verifiers[u.Name].Env))
		var settings task.Script // the settings of other verifiers differ, and have no command
		if json.Unmarshal(u.Settings, &settings) == nil && len(settings.Command) > 0 {
			c.Programs = append(c.Programs, settings.Command[0])
		}
	}
	c.Env = sandbox.List(sandbox.Merge(a.sandbox.Env, env))
	return c, nil
}

// servicesAgain checks the services again after the verification, because the
// agent may have caused what they started meanwhile.
func (s *stage) servicesAgain(ctx context.Context, p record.Phase) {
	if !s.a.sandbox.Served() || !s.a.touched || s.a.sandbox.Gone() {
		return
	}
	services, err := s.a.sandbox.SuspectServices(ctx)
	if err != nil {
		s.unknownChanges(p, err)
	}
	s.suspectServices(p, services)
}

func (s *stage) unknownChanges(p record.Phase, err error) {
	s.a.recorder.Exposed(p, "changes_unknown", "cannot tell which files of the system changed: %s", err)
}

// suspectServices records running services that the agent could have changed,
// each once.
func (s *stage) suspectServices(p record.Phase, services []host.ServiceChange) {
	for _, v := range services {
		if slices.Contains(s.suspects, v.Name) {
			continue
		}
		s.suspects, s.a.leftRunning = append(s.suspects, v.Name), true
		if len(v.Files) > 0 {
			s.a.recorder.Exposed(p, "service_changed", "service %q runs, and files that it runs changed during the agent's turn: %s", v.Name, listed(v.Files, 0))
		} else {
			s.a.recorder.Exposed(p, "service_traceable",
				"service %q ran during the agent's turn and still runs: the agent could trace it (as root, or with the same user id) and change what it does", v.Name)
		}
	}
}

// listed formats names for messages: a few of them, quoted where needed, and
// the number of the others.
func listed(names []string, more int) string {
	var b strings.Builder
	for i, name := range names {
		if i == limits.ListedFiles {
			more += len(names) - i
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		if quoted := fmt.Sprintf("%q", name); quoted != `"`+name+`"` || strings.ContainsAny(name, ", ") {
			name = quoted
		}
		b.WriteString(recorder.Cut(name, 200))
	}
	if more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}
