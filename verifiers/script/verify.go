package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// outputFile is the file for the test program's output in the scratch folder,
// if there is output.
const outputFile = "test-stdout.txt"

// shown is how many bytes of the end of the output go into the rationale.
const shown = 4 << 10

// script is the verifier.
type script struct{}

// Verify runs the test program and reads the scores that it leaves. The task's
// rule of success decides whether they are high enough.
func (script) Verify(ctx context.Context, r verifier.Request, log func(string)) (v verifier.Verdict, err error) {
	b, err := sandbox.Dial(r.Shell)
	if err != nil {
		return v, fmt.Errorf("connect to the sandbox: %w", err)
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return verify(ctx, b, r, log)
}

func verify(ctx context.Context, b sandbox.Shell, r verifier.Request, log func(string)) (v verifier.Verdict, err error) {
	settings, err := settingsOf(r.Settings)
	if err != nil {
		return v, err
	}
	v.Decision = verifier.Scored
	end := output.NewTail(shown)
	command := tests(settings, r)
	result, err := run(ctx, b, command, r.Scratch, end)
	if errors.Is(err, sandbox.ErrExists) {
		if v.Findings, err = fresh(ctx, b, command.Read, len(r.Earlier) > 0); err != nil {
			return v, err
		}
		command.Unwritten = false
		result, err = run(ctx, b, command, r.Scratch, end)
	}
	if notStarted(err) {
		return failed(v, settings.Rewards, err.Error()), nil
	}
	if err != nil {
		return v, err
	}
	if len(result.Swept) > 0 {
		v.Findings = append(v.Findings, verifier.Finding{
			Code: "tests_left_running", Severity: verifier.Note,
			Text: "the tests left processes running, which were killed before the reward was read: " + strings.Join(result.Swept, "; "),
		})
	}
	how := fmt.Sprintf("the tests exited with code %d", result.ExitCode)
	if result.Signal != 0 {
		how = fmt.Sprintf("the tests were killed by signal %s", result.Signal)
	}
	v.Rationale = how
	if printed := end.String(); printed != "" {
		v.Rationale += "; last output:\n" + printed
	}
	rewardAnswers, reportAnswers := result.Read[:len(settings.Rewards)], result.Read[len(settings.Rewards):]
	scores, ignored, err := rewards(settings.Rewards, rewardAnswers)
	if errors.Is(err, errNoReward) && (result.ExitCode == notFound || result.ExitCode == notExecutable) {
		return failed(v, settings.Rewards, how+", which means that a shell could not start a program, and wrote no reward"), nil
	}
	if errors.Is(err, verifier.ErrBadReward) {
		if end.String() != "" {
			how += ", see " + outputFile
		}
		return v, fmt.Errorf("%w; %s", err, how)
	}
	if err != nil {
		log(how) // otherwise the verdict would have contained it
		return v, err
	}
	if ignored != "" {
		v.Findings = append(v.Findings, verifier.Finding{Code: "rewards_differ", Severity: verifier.Note, Text: ignored})
	}
	v.Scores = make(map[string]verifier.Score, len(scores))
	for name, value := range scores {
		v.Scores[name] = verifier.Score{Value: value}
	}
	if err := reported(&v, settings.Reports, reportAnswers); err != nil {
		return v, fmt.Errorf("%w; %s, see %s", err, how, outputFile)
	}
	return v, nil
}

// Exit codes of a shell that could not start a program.
const (
	notExecutable = 126
	notFound      = 127
)

// notStarted reports whether err means that the sandbox could not start the
// test program: the program, its interpreter, its user or its folder is
// missing, or no more processes are possible.
func notStarted(err error) bool {
	return errors.Is(err, sandbox.ErrNoProgram) || errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrDenied) ||
		errors.Is(err, sandbox.ErrNoRoom)
}

// failed returns the verdict when the tests could not run. The agent may have
// removed something that they need, and that must not give it a better result
// than a failed test.
func failed(v verifier.Verdict, files []task.RewardFile, why string) verifier.Verdict {
	v.Decision, v.Scores = verifier.Fail, map[string]verifier.Score{}
	for _, f := range files {
		if f.Kind == "number" {
			v.Scores[f.Score] = verifier.Score{}
		}
	}
	v.Rationale = why + "\n" + v.Rationale
	v.Findings = append(v.Findings, verifier.Finding{
		Code: verifier.TestsNotStarted, Severity: verifier.Note,
		Text: "the tests could not be run, which counts as failed: " + why + ". If every agent fails this way, the image lacks what they need: run the task with its reference solution to find out",
	})
	return v
}

// settingsOf reads the settings of the task, strictly, because they decide what
// is a score.
func settingsOf(raw json.RawMessage) (task.Script, error) {
	var s task.Script
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("settings of the task for verifier script: %w", err)
	}
	if len(s.Command) == 0 || len(s.Rewards) == 0 {
		return s, errors.New("settings of the task for verifier script: command and rewards are required")
	}
	var files []string
	for _, f := range s.Reports {
		files = append(files, f.Path)
	}
	for _, f := range s.Rewards {
		files = append(files, f.Path)
		if (f.Kind != "number" || f.Score == "") && f.Kind != "json" {
			return s, fmt.Errorf("settings of the task for verifier script: reward file %q: kind is %q with score %q: want number, with a score's name, or json",
				f.Path, f.Kind, f.Score)
		}
	}
	for _, f := range files {
		if !path.IsAbs(f) || path.Clean(f) != f {
			return s, fmt.Errorf("settings of the task for verifier script: %q is not a clean absolute path", f)
		}
	}
	return s, nil
}

// fresh removes reward files and reports from before the tests, because the tests did not
// write them. The folder was recreated after the agent's turn, so only a
// program that is still running, or an earlier verifier, can have written one.
func fresh(ctx context.Context, b sandbox.Shell, files []sandbox.Reading, again bool) ([]verifier.Finding, error) {
	var findings []verifier.Finding
	for _, f := range files {
		_, err := b.Lstat(ctx, f.Path)
		if errors.Is(err, sandbox.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look for %s: %w", f.Path, err)
		}
		if err := remove(ctx, b, f.Path); err != nil {
			return nil, bad("%s was there before the tests ran and cannot be removed: %v", f.Path, err)
		}
		if again {
			continue
		}
		findings = append(findings, verifier.Finding{
			Code: "stale_reward", Severity: verifier.Exposed,
			Text: f.Path + " was there before the tests ran; it was removed",
		})
	}
	return findings, nil
}

// remove uses the sandbox's own rm, and then looks whether the file is gone: rm may be
// a manipulated one.
func remove(ctx context.Context, b sandbox.Shell, path string) error {
	said := output.NewTail(1 << 10)
	r, err := b.Exec(ctx, sandbox.Command{Argv: []string{"rm", "-rf", "--", path}, User: "0", Dir: "/", Stdout: said, Stderr: said})
	if err == nil && !r.OK() {
		err = fmt.Errorf("rm ended with exit code %d: %s", r.ExitCode, strings.TrimSpace(said.String()))
	}
	if err != nil {
		return err
	}
	switch _, err = b.Lstat(ctx, path); {
	case errors.Is(err, sandbox.ErrNotFound):
		return nil
	case err == nil:
		return errors.New("it is there again")
	}
	return err
}

// tests returns one command that runs the test program, kills what it leaves
// running and reads the reward files at the end: separate calls would each cost
// a round trip to the sandbox.
func tests(s task.Script, r verifier.Request) sandbox.Command {
	c := sandbox.Command{Argv: s.Command, User: r.User, Sweep: true, Unwritten: true}
	for _, k := range slices.Sorted(maps.Keys(r.Env)) {
		c.Env = append(c.Env, k+"="+r.Env[k])
	}
	for _, f := range s.Rewards {
		c.Read = append(c.Read, sandbox.Reading{Path: f.Path, Limit: maxReward})
	}
	for _, f := range s.Reports {
		c.Read = append(c.Read, sandbox.Reading{Path: f.Path, Limit: maxReports / int64(len(s.Reports))})
	}
	return c
}

// run runs the tests and bounds their output. If a reward file that must not
// exist yet does exist, run fails with sandbox.ErrExists and has run nothing.
func run(ctx context.Context, b sandbox.Shell, c sandbox.Command, scratch string, end io.Writer) (sandbox.Result, error) {
	file, err := output.Create(filepath.Join(scratch, outputFile))
	if err != nil {
		return sandbox.Result{}, err
	}
	both := io.MultiWriter(file, end)
	c.Stdout, c.Stderr = both, both
	result, err := b.Exec(ctx, c)
	if closed := file.Close(); err == nil && closed != nil {
		err = fmt.Errorf("write %s: %w", outputFile, closed)
	}
	if err == nil && len(result.Read) != len(c.Read) {
		err = fmt.Errorf("%d answers about %d reward files", len(result.Read), len(c.Read))
	}
	if err != nil {
		return result, fmt.Errorf("run the tests: %w", err)
	}
	return result, nil
}

// errNoReward is an ErrBadReward: there is no reward.
var errNoReward = bad("the tests wrote none")

// rewards returns the scores of the first file that exists, which alone counts.
// ignored says what is different in the files after it; empty: nothing.
func rewards(files []task.RewardFile, answers []sandbox.Answer) (scores map[string]float64, ignored string, err error) {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Path
		if errors.Is(answers[i].Err, sandbox.ErrNotFound) {
			continue
		}
		if scores, err = rewardsOf(f, answers[i]); err != nil {
			return nil, "", err
		}
		return scores, others(f.Path, scores, files[i+1:], answers[i+1:]), nil
	}
	return nil, "", fmt.Errorf("%w of %s", errNoReward, strings.Join(names, ", "))
}

// others says what is different in the files that do not count.
func others(counts string, scores map[string]float64, files []task.RewardFile, answers []sandbox.Answer) string {
	for i, f := range files {
		if errors.Is(answers[i].Err, sandbox.ErrNotFound) {
			continue
		}
		other, err := rewardsOf(f, answers[i])
		if diff := difference(scores, other); err != nil {
			return fmt.Sprintf("only %s counts; the other file is ignored: %v", counts, err)
		} else if diff != "" {
			return fmt.Sprintf("only %s counts; %s is ignored: %s", counts, f.Path, diff)
		}
	}
	return ""
}

// rewardsOf returns the scores of one file.
func rewardsOf(f task.RewardFile, a sandbox.Answer) (scores map[string]float64, err error) {
	switch {
	case errors.Is(a.Err, sandbox.ErrTooLarge):
		return nil, bad("%s has more than %d KiB", f.Path, maxReward>>10)
	case errors.Is(a.Err, sandbox.ErrUnsafe):
		return nil, bad("%s is not a regular file reached without a link: %v", f.Path, a.Err)
	case a.Err != nil:
		return nil, fmt.Errorf("read %s: %w", f.Path, a.Err)
	case f.Kind == "json":
		scores, err = jsonFile(a.Data)
	default:
		scores, err = numberFile(a.Data, f.Score)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	return scores, nil
}
