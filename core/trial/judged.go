package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
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
	d.Setting = cmp.Or(limits.Setting(s.task.Verify.TimeKey, asks, "per_trial.verifier_time", l.VerifierTime, l.VerifierTimeFactor), "the default")
	return d
}
