package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/record"
	inside "github.com/berth-eval/berth/core/sandbox"
	"github.com/berth-eval/berth/core/trial/bound"
	"github.com/berth-eval/berth/core/trial/collect"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/archive"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// settle ends the agent: the programs that it ran, and the rest as the mode
// says.
func (s *stage) settle(ctx context.Context) (record.Phase, error) {
	p := s.phase(record.PhaseSettle, record.ByEnvironment)
	return s.a.phase(ctx, p, bound.Control+bound.Create, func(ctx context.Context) error {
		w := s.a.w
		var bundles []string
		for _, b := range s.a.needs.Bundles {
			bundles = append(bundles, b.Target)
		}
		if _, err := w.Settle(ctx, nil, bundles); err != nil {
			return err
		}
		now, err := w.Processes(ctx)
		if err != nil {
			return err
		}
		left := now.Since(w.known)
		switch s.mode {
		case task.ModeRestarted:
			return s.restart(ctx)
		case task.ModeCopies:
			return w.freeze(ctx)
		default:
			if len(left) > 0 || len(now.Unattributed) > 0 {
				s.a.leftRunning = true
				s.a.scribe.exposed(p, "left_running", "the agent left %s running", describe(left, now.Unattributed))
			}
			return nil
		}
	})
}

// restart kills everything but PID 1 and starts the task's own services again.
func (s *stage) restart(ctx context.Context) error {
	w := s.a.w
	killed, err := w.Quiesce(ctx)
	if err != nil {
		return err
	}
	for _, k := range killed {
		if k.Service == "" && len(k.Listening) > 0 {
			s.killed = append(s.killed, name(k)+" on "+addresses(k.Listening))
		}
	}
	started, err := w.RestartServices(ctx)
	if err != nil || len(started) == 0 {
		return err
	}
	for i := range s.a.task.Services {
		if r := s.a.task.Services[i].Ready; r != nil {
			if err := w.healthy(ctx, r); err != nil {
				return by(record.ByTask, fmt.Errorf("service %q after a restart: %w", s.a.task.Services[i].Name, err))
			}
		}
	}
	return nil
}

// describe lists processes for people. What they say of themselves is quoted.
func describe(ps []inside.Process, more []inside.Socket) string {
	var names []string
	for i, p := range ps {
		if i == bound.ListedProcesses {
			names = append(names, fmt.Sprintf("%d more", len(ps)-i))
			break
		}
		n := name(p)
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

func name(p inside.Process) string {
	line := strings.Join(p.Argv, " ")
	if line == "" {
		line = p.Comm
	}
	return fmt.Sprintf("%q (%d)", cut(line, 80), p.PID)
}

func addresses(ss []inside.Socket) string {
	var out []string
	for i, s := range ss {
		if i == bound.ListedProcesses {
			break
		}
		out = append(out, fmt.Sprintf("%s %s", s.Network, cut(s.Address, 80)))
	}
	return strings.Join(out, ", ")
}

// freeze stops everything in the sandbox, until thaw.
func (w *world) freeze(ctx context.Context) error {
	if _, err := w.Freeze(ctx); err != nil {
		return err
	}
	w.frozen = time.Now()
	return nil
}

// thaw lets it go on. It outlives a cancel, but not for ever.
func (w *world) thaw(ctx context.Context) error {
	if w.frozen.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound.Control)
	defer cancel()
	w.frozen = time.Time{}
	return w.Thaw(ctx)
}

// collect takes out of the sandbox what the task declares, and closes the
// agent's session if this was its last stage.
func (s *stage) collect(ctx context.Context) (record.Phase, error) {
	p := s.phase(record.PhaseCollect, record.ByEnvironment)
	return s.a.phase(ctx, p, bound.Collect, func(ctx context.Context) error {
		into := filepath.Join(s.a.in.Record.Dir(), filepath.FromSlash(s.artifacts()))
		if err := s.artifactsInto(ctx, p, into); err != nil {
			return err
		}
		if next := s.i + 1; next == len(s.a.task.Stages) || !s.a.task.Stages[next].SameSession {
			if err := s.a.closeSession(ctx); err != nil {
				if errors.Is(err, ErrPluginGone) {
					return err
				}
				s.a.scribe.note(p, "close_session", "%s", err)
			}
		}
		return s.a.trajectory(p)
	})
}

// artifacts is the folder of the stage's artifacts in the attempt: one for all
// when there is one stage only.
func (s *stage) artifacts() string {
	if len(s.a.task.Stages) == 1 {
		return record.ArtifactsDir
	}
	return record.ArtifactsDir + "/" + s.task.Name
}

func (s *stage) artifactsInto(ctx context.Context, p record.Phase, into string) error {
	var as []collect.Artifact
	if dir := s.a.task.Paths.Artifacts; dir != "" {
		as = append(as, collect.Artifact{Artifact: task.Artifact{Source: dir}, Implied: true})
	}
	for _, a := range s.task.Artifacts {
		as = append(as, collect.Artifact{Artifact: a})
	}
	if len(as) == 0 {
		return nil
	}
	c := collect.Collector{Into: into, Workdir: s.a.w.dir, Redactor: s.a.scribe.redact, Fetch: s.a.w.fetch}
	entries, err := c.All(ctx, as)
	for _, e := range entries {
		if e.Status == collect.Failed {
			s.a.scribe.note(p, "artifact_failed", "%s: %s", e.Source, e.Reason)
		}
		if e.Secrets > 0 {
			s.a.scribe.note(p, "secret_in_artifact", "%s held %d secret values, which were masked", e.Source, e.Secrets)
		}
	}
	return by(record.ByCore, err)
}

// fetch is a path of the sandbox as an archive.
func (w *world) fetch(ctx context.Context, service, path string, out io.Writer) error {
	if service != "" && service != "main" {
		return fmt.Errorf("container %q: tasks of several containers are not supported yet", service)
	}
	return w.shell.Download(ctx, path, out, archive.Limits{Bytes: bound.ArtifactBytes, Entries: bound.ArtifactEntries})
}

// closeSession ends the agent's session: it is handed the logs that it asked
// for, and what it left on the host is kept.
func (a *attempt) closeSession(ctx context.Context) error {
	s := a.session
	if s == nil {
		return nil
	}
	a.session = nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound.Collect)
	defer cancel()
	logs, err := a.folder("logs", s.id)
	errs := []error{err}
	if len(s.needs.Logs) > 0 && a.w != nil && !a.w.gone() {
		errs = append(errs, a.agentLogs(ctx, s, logs))
	}
	errs = append(errs, s.close(ctx, logs), s.shut(ctx))
	to := filepath.Join(a.in.Record.Dir(), record.AgentDir)
	if len(a.task.Stages) > 1 {
		to = filepath.Join(to, s.id)
	}
	errs = append(errs,
		collect.Folder(s.scratch, to, a.scribe.redact),
		collect.Folder(logs, filepath.Join(to, "logs"), a.scribe.redact),
		os.RemoveAll(logs))
	return errors.Join(errs...)
}

// agentLogs copies the agent's own logs out of the sandbox. One that is not
// there is no news.
func (a *attempt) agentLogs(ctx context.Context, s *session, to string) error {
	var errs []error
	for _, path := range s.needs.Logs {
		limits := archive.Limits{Bytes: bound.LogsBytes, Entries: bound.ArtifactEntries}
		dir := filepath.Join(to, strings.TrimPrefix(filepath.Dir(path), "/"))
		if info, err := a.w.shell.Stat(ctx, path); err == nil && info.Kind == sandbox.Folder {
			dir = filepath.Join(to, strings.TrimPrefix(path, "/"))
		} else if errors.Is(err, sandbox.ErrNotFound) {
			continue
		}
		if _, err := a.w.shell.DownloadFolder(ctx, path, dir, limits); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// needsLive says that a task which failed may have needed what restarted
// killed.
func (s *stage) needsLive(v verifier.Verdict) {
	if v.Decision == verifier.Fail && len(s.killed) > 0 {
		s.a.scribe.note(s.phase(record.PhaseVerify, record.ByVerifier), "needs_live",
			"it failed after processes that were listening had been killed (%s): if the task grades what is left running, verify it in %q",
			strings.Join(s.killed, "; "), task.ModeLive)
	}
}
