package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/collect"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/recorder"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/fault"
	shell "github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/archive"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/system"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// settle ends the programs that the agent ran, and the others as the mode
// requires.
func (s *stage) settle(ctx context.Context) error {
	p := s.phase(record.PhaseSettle, record.ByEnvironment)
	return s.a.phase(ctx, p, limits.Control+limits.Create, func(ctx context.Context) error {
		now, err := s.a.endAgent(ctx)
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(now.Since(s.a.sandbox.Known), func(p host.Process) bool { return p.Session == surfaceSession })
		if s.mode != task.ModeLive && len(left)+len(now.Unattributed) > 0 {
			s.a.recorder.Note(p, "processes_ended", "the agent left %s running, which mode %q ends before the verification. A task that needs it is verified in %q",
				sandbox.Describe(left, now.Unattributed), s.mode, task.ModeLive)
		}
		switch s.mode {
		case task.ModeRestarted:
			return s.restart(ctx)
		case task.ModeCopies, task.ModeImage, task.ModeSeparate:
			return s.quiesce(ctx)
		default:
			if len(left) > 0 || len(now.Unattributed) > 0 {
				s.a.leftRunning = true
				s.a.recorder.Exposed(p, "left_running", "the agent left %s running", sandbox.Describe(left, now.Unattributed))
			}
			return nil
		}
	})
}

// endAgent ends the first process of each command of the agent, and everything that
// runs from its bundles. It returns what is left in the main container. What a surface
// runs continues.
func (a *attempt) endAgent(ctx context.Context) (host.Processes, error) {
	var sessions, bundles []string
	if a.surface.open != nil && a.session != nil {
		sessions = []string{a.session.id}
	}
	for _, b := range a.needs.Bundles {
		bundles = append(bundles, b.Target)
	}
	done, err := a.sandbox.Settle(ctx, sessions, bundles)
	return host.Processes{List: done.Left, Unattributed: done.Unattributed}, err
}

// freeze stops the agent's sandbox until thaw, which does nothing the second time.
func (s *stage) freeze(ctx context.Context, round int) (thaw func() error, err error) {
	at := s.phase(record.PhaseFreeze, record.ByEnvironment)
	at.Round = round
	if err = s.a.phase(ctx, at, limits.Control, s.a.sandbox.Halt); err != nil {
		return nil, err
	}
	at.Name = record.PhaseThaw
	return sync.OnceValue(func() error { return s.a.phase(context.WithoutCancel(ctx), at, limits.Control, s.a.resume) }), nil
}

// resume resumes the agent's sandbox.
func (a *attempt) resume(ctx context.Context) error {
	return errors.Join(a.reportMoved(ctx), a.sandbox.Resume(ctx))
}

// reportMoved reports what ran in the agent's sandbox although it was frozen: what
// was copied meanwhile may not be of one moment.
func (a *attempt) reportMoved(ctx context.Context) error {
	moved, err := a.sandbox.Moved(ctx)
	if len(moved) > 0 {
		a.recorder.Exposed(record.Phase{Name: record.PhaseThaw, Who: record.ByAgent}, "ran_while_frozen",
			"the sandbox was frozen, and these processes continued or ended: %s", sandbox.Describe(moved, nil))
	}
	return err
}

// quiesce ends every process of the agent's sandbox before anything is copied out of
// it: a process that is only frozen can wake itself with a timer that sends
// SIGCONT. If a later stage continues in the sandbox, freezing has to do. Mode image
// looks at its running services first, and copies its files later.
func (s *stage) quiesce(ctx context.Context) error {
	if s.mode == task.ModeImage || s.i+1 < len(s.a.task.Stages) {
		return s.a.sandbox.Halt(ctx)
	}
	return s.a.sandbox.Stop(ctx)
}

// notRestarted records that a service was not started again.
func (s *stage) notRestarted(name string, files []string) {
	s.a.recorder.Note(s.phase(record.PhaseSettle, record.ByEnvironment), "service_not_restarted",
		"service %q was not started again, since files that it runs changed during the agent's turn: %s. If the task is to change them, verify it in %q",
		name, listed(files, 0), task.ModeLive)
}

// restart kills everything but PID 1 and starts the task's own services again.
func (s *stage) restart(ctx context.Context) error {
	w := s.a.sandbox
	if _, err := w.Quiesce(ctx); err != nil {
		return err
	}
	s.a.surface.killed = s.a.surface.open != nil
	started, changed, err := w.RestartServices(ctx)
	for _, v := range changed {
		s.notRestarted(v.Name, v.Files)
	}
	if err != nil {
		return err
	}
	if slices.Contains(started, sandbox.Entrypoint) {
		if _, err := w.AwaitEntrypoint(ctx, &s.a.task.Environment); err != nil { // the first start has recorded a note
			return err
		}
	}
	for i := range s.a.task.Services {
		if r := s.a.task.Services[i].Ready; r != nil && slices.Contains(started, s.a.task.Services[i].Name) {
			if err := w.Healthy(ctx, r); err != nil {
				return fmt.Errorf("service %q after a restart: %w", s.a.task.Services[i].Name, err)
			}
		}
	}
	return nil
}

// collect copies what the task declares out of the sandbox, and closes the
// agent's session if this was its last stage.
func (s *stage) collect(ctx context.Context) error {
	p := s.phase(record.PhaseCollect, record.ByEnvironment)
	return s.a.phase(ctx, p, limits.Collect, func(ctx context.Context) error {
		into := filepath.Join(s.a.in.Record.Dir(), filepath.FromSlash(s.artifacts()))
		var err error
		if s.collected, err = s.artifactsInto(ctx, p, into); err != nil {
			return err
		}
		if next := s.i + 1; next == len(s.a.task.Stages) || !s.a.task.Stages[next].SameSession {
			if err = s.a.closeSession(ctx); err != nil {
				// The agent's work is done. A plugin that dies because of the
				// content of the logs gets no further attempt.
				s.a.recorder.Note(p, "close_session", "%s", err)
			}
		}
		who := trajectory.Agent{Name: s.a.agentUsed.Name, Version: s.a.agentVersion()}
		if m, ok := s.a.in.Cell.Agent.Models["default"]; ok {
			who.ModelName = m.Name
		}
		b, err := s.a.recorder.Trajectory(p, s.a.in.Record.Dir(), who, recorder.Whole{
			Session: fmt.Sprintf("%s/%d", s.a.in.Trial, s.a.in.Attempt), Used: s.a.used(),
		})
		if err == nil && b != nil {
			err = s.a.in.Record.WriteFile(record.TrajectoryFile, b)
		}
		return outcome.On(record.ByCore, err)
	})
}

// agentVersion returns the version of the agent: that of the program that its
// plugin runs, if it comes in one bundle, or else that of the plugin.
func (a *attempt) agentVersion() string {
	if len(a.needs.Bundles) == 1 {
		if _, version, ok := strings.Cut(a.needs.Bundles[0].Name, "@"); ok && version != "" {
			return version
		}
	}
	return a.agentUsed.Version
}

// used returns what the agent's models have used so far.
func (a *attempt) used() (us []record.Usage) {
	for _, u := range a.res.Usage {
		if u.Role == string(agent.RoleAgent) {
			us = append(us, u)
		}
	}
	if s := a.session; s != nil && s.models != nil { // the session continues in the next stage
		us = append(us, s.models.Usage()...)
	}
	return us
}

// artifacts returns the folder of the stage's artifacts in the attempt. With
// only one stage there is no subfolder.
func (s *stage) artifacts() string {
	if len(s.a.task.Stages) == 1 {
		return record.ArtifactsDir
	}
	return record.ArtifactsDir + "/" + s.task.Name
}

func (s *stage) artifactsInto(ctx context.Context, p record.Phase, into string) ([]collect.Entry, error) {
	var as []collect.Artifact
	if dir := s.a.task.Paths.Artifacts; dir != "" && !slices.ContainsFunc(s.task.Artifacts, func(a task.Artifact) bool { return a.Source == dir && a.To == "" }) {
		as = append(as, collect.Artifact{Artifact: task.Artifact{Source: dir}, Implied: true})
	}
	for _, a := range s.task.Artifacts {
		as = append(as, collect.Artifact{Artifact: a})
	}
	if len(as) == 0 {
		return nil, nil
	}
	plain, err := s.a.unmasked(into)
	if err != nil {
		return nil, outcome.On(record.ByCore, err)
	}
	c := collect.Collector{Into: into, Unmasked: plain, Workdir: s.a.sandbox.Dir, Redactor: s.a.recorder.Redactor(), Fetch: s.a.sandbox.Fetch}
	entries, err := c.All(ctx, as)
	s.bulky = c.Bytes() >= limits.ArtifactFills
	for _, e := range entries {
		if e.Status == collect.Failed {
			s.a.recorder.Note(p, "artifact_failed", "%s: %s", e.Source, e.Reason)
		}
		if n := int64(len(e.Dropped)) + e.DroppedMore; n > 0 {
			s.a.recorder.Note(p, "artifacts_left_out", "%s: %d of its entries were left out, and the rest is kept: %s", e.Source, n, recorder.Cut(strings.Join(e.Dropped, "; "), 500))
		}
		if e.Secrets > 0 {
			s.a.recorder.Note(p, "secret_in_artifact", "%s held %d secret values, which are masked in what is kept", e.Source, e.Secrets)
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // its duration depends on the content of the sandbox
	}
	return entries, outcome.On(record.ByCore, err)
}

// closeSession closes the agent's session. It passes on the logs that the
// session asked for, and keeps the files that it left on the host.
func (a *attempt) closeSession(ctx context.Context) error {
	s := a.session
	if s == nil {
		return nil
	}
	a.session = nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.Collect)
	defer cancel()
	var errs []error
	logs := ""
	if len(s.needs.Logs) > 0 && a.sandbox != nil && !a.sandbox.Gone() {
		var err error
		if logs, err = a.folders().Make("logs-" + s.id); err == nil {
			err = a.agentLogs(ctx, s, logs)
		}
		errs = append(errs, err)
	}
	errs = append(errs, s.close(ctx, logs), s.shut(ctx))
	to := filepath.Join(a.in.Record.Dir(), record.AgentDir)
	if len(a.task.Stages) > 1 {
		to = filepath.Join(to, s.id)
	}
	errs = append(errs, collect.Folder(s.scratch, to, a.recorder.Redactor()))
	if logs != "" {
		errs = append(errs, collect.Folder(logs, filepath.Join(to, "logs"), a.recorder.Redactor()), os.RemoveAll(logs))
	}
	return errors.Join(errs...)
}

// agentLogs copies the agent's own logs out of the sandbox. A missing log is
// ignored.
func (a *attempt) agentLogs(ctx context.Context, s *session, to string) error {
	var errs []error
	for _, path := range s.needs.Logs {
		limits := archive.Limits{Bytes: limits.LogsBytes, Entries: limits.ArtifactEntries}
		dir := filepath.Join(to, strings.TrimPrefix(filepath.Dir(path), "/"))
		if info, err := a.sandbox.Core().Stat(ctx, path); err == nil && info.Kind == shell.Folder {
			dir = filepath.Join(to, strings.TrimPrefix(path, "/"))
		} else if errors.Is(err, shell.ErrNotFound) {
			continue
		}
		if _, err := a.sandbox.Core().DownloadFolder(ctx, path, dir, limits); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, collect.OpenUp(to))...)
}

// mark has the files of the system listed before the agent's first command. Before
// those of a further stage it looks for what has changed since the list before: a
// change by the tests or the healthcheck of an earlier stage may be the agent's work,
// too. An agent without a shell cannot change anything, so that nothing is listed.
func (s *stage) mark(ctx context.Context) error {
	a, p := s.a, s.phase(record.PhaseSetup, record.ByEnvironment)
	if !a.needs.Shell && !a.needs.Terminal {
		return nil
	}
	if !a.systemListed {
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
	a.systemListed, a.listedAt = true, time.Now()
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
	if !s.a.systemListed {
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
	if !s.a.systemListed || s.graded != s.a.sandbox || len(s.fresh()) == 0 {
		return nil
	}
	gone, err := host.SetAside(ctx, s.graded.Core(), s.a.listedAt, s.fresh())
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
	if !s.a.sandbox.Served() || !s.a.agentActed || s.a.sandbox.Gone() {
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
