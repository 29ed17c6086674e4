package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
	"github.com/berth-eval/berth/plugins/verifier"
)

// attemptView adds the attempt so far to a view, with the artifacts of the stage or
// the copies of a round.
func (s *stage) attemptView(view string, j judgement) (err error) {
	dir, own := s.a.in.Record.Dir(), s.a.in.Record.Dir()
	shown := views.Copies{Dir: j.copies}
	if o := s.a.in.Origin; o != nil { // what the agent did and left
		dir, shown.Verdicts = o.Dir, own
		if s.turns > 0 { // what it did later was not there to be judged
			shown.Keep = func(turn int, kind string) bool {
				return turn <= s.turns && (kind != string(record.TurnOver) || j.round == 0 && s.whole)
			}
		}
	}
	if shown.Dir == "" {
		shown.Dir = filepath.Join(dir, filepath.FromSlash(s.artifacts()))
	}
	if dir == own {
		shown.Unmasked, err = s.a.unmasked(shown.Dir)
		if err == nil {
			shown.Captures, err = s.a.unmasked(filepath.Join(own, record.CapturesDir))
		}
		if err == nil {
			shown.Records, err = s.a.unmasked(own)
		}
		if err != nil {
			return err
		}
	}
	err = views.Attempt(view, dir, shown, task.RoleVerifier)
	if err == nil {
		err = views.Folder(s.subagents(dir), filepath.Join(view, views.AttemptFolder, record.AgentDir, subagents))
	}
	if err == nil {
		err = s.disclose(view)
	}
	if untrusted.RefusesName(err) || s.bulky && untrusted.NoSpace(err) {
		return outcome.On(s.a.owner(record.ByEnvironment), err) // the agent chooses names and sizes
	}
	return err
}

// subagents is the folder of an agent's files with the sessions of its sub-agents.
const subagents = "subagents"

// subagents returns the folder with the sessions of the agent's sub-agents so far.
func (s *stage) subagents(attempt string) string {
	if s.a.scratch != "" { // as they are, while what is kept is masked
		return filepath.Join(s.a.scratch, subagents)
	}
	return filepath.Join(attempt, record.AgentDir, s.out.Session, subagents)
}

// disclose adds to a view for verifiers what the agent has of the host's variables,
// if the task wants it: its values are in what the agent did.
func (s *stage) disclose(view string) error {
	name := s.task.Agent.EnvFile
	if name == "" || len(s.task.Agent.Env) == 0 {
		return nil
	}
	env, err := s.task.Agent.Env.Resolve(s.a.in.LookupEnv)
	if err != nil {
		return outcome.On(record.ByConfig, fmt.Errorf("environment of the agent: %w", err))
	}
	var b strings.Builder
	for _, n := range slices.Sorted(maps.Keys(env)) {
		value := env[n]
		if strings.ContainsAny(value, "\r\n") {
			value = strconv.Quote(value)
		}
		fmt.Fprintf(&b, "%s=%s\n", n, value)
	}
	to := filepath.Join(view, filepath.FromSlash(name))
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, []byte(b.String()), 0o600))
}

// unmasked returns a folder beside the record for those files of a folder of the
// record that held secrets, as they were. They are what is judged.
func (a *attempt) unmasked(folder string) (string, error) {
	in, err := filepath.Rel(a.in.Record.Dir(), folder)
	if err != nil {
		return "", err
	}
	return a.folders().Make(filepath.Join("unmasked", in))
}

// placeUnmasked places those files of an artifact over it that held secrets.
func (s *stage) placeUnmasked(ctx context.Context, w *sandbox.Sandbox, dir, at, source string) error {
	plain, err := s.a.unmasked(dir)
	if err != nil {
		return outcome.On(record.ByCore, err)
	}
	if _, err = os.Lstat(filepath.Join(plain, at)); errors.Is(err, fs.ErrNotExist) {
		return nil // they were too many to be kept apart, or it is the artifact of an earlier attempt
	}
	return w.PutFiles(ctx, filepath.Join(plain, at), s.a.sandbox.Absolute(source))
}

// verifyDeadline is the cause with which a verification ends after verifyTime. tests
// means that it runs in a sandbox.
func (s *stage) verifyDeadline(tests bool) limits.Deadline {
	l, asks := s.a.in.Cell.Limits, s.task.Verify.Time.Std()
	d := limits.Deadline{What: "the verifier was", Limit: s.verifyTime()}
	if tests {
		d.What = "the tests were"
	}
	d.Setting = cmp.Or(limits.Setting(s.task.Verify.TimeKey, asks, "per_trial.verifier_time", l.VerifierTime, l.TimeFactor), "the default")
	return d
}

// judgeModels opens the models of a verifier; nil if it gets none. A verifier
// that works in the sandbox gets them there, too: for the programs of the task,
// such as a judge that is part of its tests.
func (s *stage) judgeModels(ctx context.Context, j judgement, own cell.Verifier, plugin VerifierPlugin) (models.Session, error) {
	inside := feasible.JudgesInside(plugin.Traits, own) && j.round == 0
	programs := inside && len(s.task.Verify.Env.HostVars()) > 0
	if s.a.in.Gateway == nil || len(plugin.Traits.Models) == 0 && !programs {
		return nil, nil //nolint:nilnil // it gets none
	}
	spec := s.a.modelSpec(record.RoleJudge, own.Models)
	spec.Verifier, spec.Budget = j.use.Name, own.Budget
	if inside {
		spec.Inside = func(ctx context.Context, port int, serve func(net.Conn)) (*host.Port, error) {
			p, err := s.graded.Listen(ctx, port, serve)
			return p, outcome.On(s.a.owner(record.ByEnvironment), err) // no model is involved
		}
	}
	m, err := s.a.in.Gateway.Session(ctx, spec)
	if err != nil {
		return nil, outcome.On(record.ByModel, err)
	}
	for _, e := range m.Endpoints() {
		s.a.recorder.Hide(e.Token)
	}
	m.Allow(ctx)
	return m, nil
}

// judgeEnv returns the variables of a verifier, for which m are its models. Those
// of its block in the experiment come last.
func (s *stage) judgeEnv(own cell.Verifier, m models.Session) (map[string]string, error) {
	var keys, addresses map[string]string
	if m != nil {
		keys, addresses = m.Variables()
	}
	asks, supplied := feasible.FromModels(s.task.Verify.Env, keys, addresses)
	if !supplied {
		addresses = nil
	}
	env, err := asks.Resolve(s.a.in.LookupEnv)
	if err != nil {
		return nil, outcome.On(record.ByConfig, fmt.Errorf("environment of the verifier: %w", err))
	}
	return sandbox.Merge(env, addresses, cell.Strings(own.Env)), nil
}

// checkJudgeAnswered returns an error if the programs of the task gave a verdict
// although their model did not answer the last request, or refused one because of the
// budget. Such a verdict says nothing about the agent's work.
func (s *stage) checkJudgeAnswered() error {
	if s.models == nil {
		return nil
	}
	state := s.models.State()
	if down := cmp.Or(state.Down, state.GaveUp); down != nil {
		return outcome.On(record.ByModel, fmt.Errorf("%w; the verdict was given without its answer", down))
	}
	if r := state.Refusal; r != nil && r.Scope == "" && !r.Provider {
		return fmt.Errorf("%w; the verdict was given without its answer", r.Err)
	}
	return nil
}

// verifierDir returns the folder where the attempt keeps the files that a
// verifier wrote on the host: verifier/, with a subfolder for each stage, round
// and verifier if there are several.
func (s *stage) verifierDir(j judgement) string {
	dir := s.verifierFiles()
	if len(s.a.task.Stages) > 1 {
		dir = filepath.Join(dir, s.task.Name)
	}
	if j.round > 0 {
		dir = filepath.Join(dir, fmt.Sprintf("round-%d", j.round))
	}
	if len(s.task.Verifiers) > 1 {
		dir = filepath.Join(dir, plainName(j.use.Name, j.number))
	}
	return dir
}

// numbered names a judgement.
func (s *stage) numbered(j judgement) string {
	return fmt.Sprintf("%d-%d-%d", s.i+1, j.round, j.number)
}

// verifierFiles is the folder of the attempt with the files of verifiers.
func (s *stage) verifierFiles() string {
	return filepath.Join(s.a.in.Record.Dir(), record.VerifierDir)
}

// plainName returns a verifier's name as the name of a folder, or a number if
// the name is not suitable.
func plainName(name string, number int) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return r != '-' && r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}) {
		return fmt.Sprint(number)
	}
	return name
}

// callVerifier calls a verifier. One process serves the verifications of all
// attempts, so when it ends, any of them may be the cause. A call whose process
// ends is therefore repeated once, in its own process. If that process
// ends too, the work of the agent is the cause, and the agent must not get
// another attempt. scratch is emptied before the second call.
func callVerifier[T any](ctx context.Context, s *stage, p VerifierPlugin, scratch string, f func(verifier.Verifier) (T, error)) (T, error) {
	v, err := f(p.Verifier)
	if !died(err) || p.OwnProcess == nil || !s.a.agentActed || ctx.Err() != nil {
		return v, err
	}
	own, stop, failed := p.OwnProcess(ctx)
	if failed != nil {
		return v, fmt.Errorf("%w; it could not be started again: %w", err, failed)
	}
	defer stop()
	if failed = errors.Join(os.RemoveAll(scratch), os.Mkdir(scratch, 0o700)); failed != nil {
		return v, outcome.On(record.ByCore, failed)
	}
	s.a.recorder.Note(s.phase(record.PhaseVerify, record.ByVerifier), "verifier_repeated",
		"the process of the verifier ended, and the verification was repeated in its own process: %s", err)
	if v, err = f(own); died(err) {
		err = &record.Error{Boundary: record.ByVerifier, Outcome: record.VerifierError, Err: fmt.Errorf(
			"its process ended, and again when this attempt was the only one in it, so what the agent left is the cause: %w", err)}
	}
	return v, err
}

// died reports whether a call failed because the process of its plugin ended. A
// panic ends only the call.
func died(err error) bool {
	return errors.Is(err, plugin.ErrPluginGone) && !errors.Is(err, fault.ErrPanic)
}
