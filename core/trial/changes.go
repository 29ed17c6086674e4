package trial

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/recorder"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/task"
)

// mark makes the sandbox attribute changes from now on to the agent. An earlier
// mark is kept until changes have been looked for, so that a stage that is not
// verified in the sandbox hides nothing from the next one. An agent without a
// shell cannot change anything, so that there is nothing to mark.
func (a *attempt) mark(ctx context.Context) error {
	if a.marked || !a.needs.Shell && !a.needs.Terminal {
		return nil
	}
	a.marked = true
	return a.sandbox.Mark(ctx)
}

// changedTools looks for changes that the agent made to what the verification
// is about to run: tools, start-up files, services. It records the first two.
func (s *stage) changedTools(ctx context.Context, p record.Phase, uses []task.VerifierUse) host.Changed {
	now, err := s.lookForChanges(ctx, uses)
	if err != nil {
		s.unknownChanges(p, err)
	}
	s.exposedTools(p, now.Files, now.More)
	return now
}

func (s *stage) exposedTools(p record.Phase, files []string, more int) {
	if len(files) > 0 {
		s.a.recorder.Exposed(p, "tools_changed", "programs, libraries or start-up files that the verification may use changed during the agent's turn: %s",
			listed(files, more))
	}
}

// lookForChanges does it without recording anything. It leaves out files below
// the folders in except.
func (s *stage) lookForChanges(ctx context.Context, uses []task.VerifierUse, except ...string) (now host.Changed, err error) {
	a := s.a
	if !a.marked {
		return now, nil
	}
	a.marked = false
	c, err := s.commands(uses)
	if err != nil {
		return now, nil //nolint:nilerr // the request of the first verifier fails for the same reason
	}
	c.Placed = append(s.fresh(), except...)
	return a.sandbox.Changes(ctx, c)
}

// commands describes the commands of the verification.
func (s *stage) commands(uses []task.VerifierUse) (host.Commands, error) {
	a := s.a
	env, err := s.task.Verify.Env.Resolve(a.in.LookupEnv)
	if err != nil {
		return host.Commands{}, err
	}
	c := host.Commands{User: s.verifyUser(), Dir: a.sandbox.Dir}
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
	now, err := s.a.sandbox.Changes(ctx, host.Commands{ServicesOnly: true})
	if err != nil {
		s.unknownChanges(p, err)
		return
	}
	s.suspectServices(p, now.Services)
}

func (s *stage) unknownChanges(p record.Phase, err error) {
	s.a.recorder.Exposed(p, "changes_unknown", "cannot tell what the agent changed of what the verification runs: %s", err)
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
