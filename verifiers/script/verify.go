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
	"sync"

	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// outputFile is where the test program's output goes, in the scratch folder, if
// it prints anything.
const outputFile = "test-stdout.txt"

// shown is how much of the end of the output goes into the rationale, in bytes.
const shown = 4 << 10

// box is what the verifier does in the sandbox.
type box interface {
	// Run runs the tests, and kills what they left running when they end; the
	// command lines of what was killed are left.
	Run(ctx context.Context, c sandbox.Command) (result sandbox.Result, left []string, err error)
	// Read reads one regular file, through no link.
	Read(ctx context.Context, path string, limit int64) ([]byte, error)
	// Exists says whether there is anything of that name.
	Exists(ctx context.Context, path string) (bool, error)
	// Remove removes it.
	Remove(ctx context.Context, path string) error
	Close() error
}

// script is the verifier. dial connects to a sandbox.
type script struct {
	dial func(address string) (box, error)
}

// Verify runs the test program and reads the scores that it leaves. Whether
// they are enough is for the task's rule of success to say.
func (s script) Verify(ctx context.Context, r verifier.Request, log func(string)) (v verifier.Verdict, err error) {
	settings, err := settingsOf(r.Settings)
	if err != nil {
		return v, err
	}
	b, err := s.dial(r.Shell)
	if err != nil {
		return v, fmt.Errorf("connect to the sandbox: %w", err)
	}
	defer func() { err = errors.Join(err, b.Close()) }()

	v.Decision = verifier.Scored
	if v.Findings, err = fresh(ctx, b, settings.Rewards, len(r.Earlier) > 0); err != nil {
		return v, err
	}
	end := output.NewTail(shown)
	result, left, err := run(ctx, b, settings.Command, r, end)
	if err != nil {
		return v, err
	}
	if len(left) > 0 {
		v.Findings = append(v.Findings, verifier.Finding{
			Code: "tests_left_running", Severity: verifier.Note,
			Text: "the tests left processes running, which were killed before the reward was read: " + strings.Join(left, "; "),
		})
	}
	how := fmt.Sprintf("the tests ended with exit code %d", result.ExitCode)
	if result.Signal != 0 {
		how = fmt.Sprintf("the tests were ended by a signal (%s)", result.Signal)
	}
	v.Rationale = how + "; the end of what they printed:\n" + end.String()
	scores, err := rewards(ctx, b, settings.Rewards)
	if errors.Is(err, verifier.ErrBadReward) {
		return v, fmt.Errorf("%w; %s, see %s", err, how, outputFile)
	}
	if err != nil {
		log(how) // a verdict would have said it
		return v, err
	}
	v.Scores = make(map[string]verifier.Score, len(scores))
	for name, value := range scores {
		v.Scores[name] = verifier.Score{Value: value}
	}
	return v, nil
}

// settingsOf reads what the task says, strictly: it decides what is a score.
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
	for _, f := range s.Rewards {
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path {
			return s, fmt.Errorf("settings of the task for verifier script: reward file %q is not a clean absolute path", f.Path)
		}
		if (f.Kind != "number" || f.Score == "") && f.Kind != "json" {
			return s, fmt.Errorf("settings of the task for verifier script: reward file %q: kind is %q with score %q: want number, with a score's name, or json",
				f.Path, f.Kind, f.Score)
		}
	}
	return s, nil
}

// fresh removes reward files that were there before the tests: they are not
// the tests' word. The folder was made afresh after the agent, so only a
// program that still runs can have written one, or a verifier before this one.
func fresh(ctx context.Context, b box, files []task.RewardFile, again bool) ([]verifier.Finding, error) {
	var findings []verifier.Finding
	for _, look := range atOnce(files, func(f task.RewardFile) (bool, error) { return b.Exists(ctx, f.Path) }) {
		f := look.file
		if look.err != nil {
			return nil, fmt.Errorf("look for %s: %w", f.Path, look.err)
		}
		if !look.got {
			continue
		}
		if err := b.Remove(ctx, f.Path); err != nil {
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

// run runs the tests and keeps what they print within bounds.
func run(ctx context.Context, b box, argv []string, r verifier.Request, end io.Writer) (sandbox.Result, []string, error) {
	file, err := output.Create(filepath.Join(r.Scratch, outputFile))
	if err != nil {
		return sandbox.Result{}, nil, err
	}
	both := io.MultiWriter(file, end)
	var env []string
	for _, k := range slices.Sorted(maps.Keys(r.Env)) {
		env = append(env, k+"="+r.Env[k])
	}
	result, left, err := b.Run(ctx, sandbox.Command{Argv: argv, Env: env, User: r.User, Stdout: both, Stderr: both})
	if closed := file.Close(); err == nil && closed != nil {
		err = fmt.Errorf("write %s: %w", outputFile, closed)
	}
	if err != nil {
		return result, left, fmt.Errorf("run the tests: %w", err)
	}
	return result, left, nil
}

// answer is what was found of one file.
type answer[T any] struct {
	file task.RewardFile
	got  T
	err  error
}

// atOnce asks about all files together: each question is a way to the sandbox
// and back. Answers are in the order of the files.
func atOnce[T any](files []task.RewardFile, ask func(task.RewardFile) (T, error)) []answer[T] {
	answers := make([]answer[T], len(files))
	var all sync.WaitGroup
	for i, f := range files {
		all.Go(func() {
			answers[i].file = f
			answers[i].got, answers[i].err = ask(f)
		})
	}
	all.Wait()
	return answers
}

// rewards reads the scores. Every file that exists must be good, and no two may
// contradict each other; the first counts.
func rewards(ctx context.Context, b box, files []task.RewardFile) (map[string]float64, error) {
	var found map[string]float64
	where := ""
	for _, read := range atOnce(files, func(f task.RewardFile) ([]byte, error) { return b.Read(ctx, f.Path, maxReward) }) {
		f, data, err := read.file, read.got, read.err
		switch {
		case errors.Is(err, sandbox.ErrNotFound):
			continue
		case errors.Is(err, sandbox.ErrTooLarge):
			return nil, bad("%s has more than %d KiB", f.Path, maxReward>>10)
		case errors.Is(err, sandbox.ErrUnsafe):
			return nil, bad("%s is not a regular file reached without a link: %v", f.Path, err)
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", f.Path, err)
		}
		var scores map[string]float64
		if f.Kind == "json" {
			scores, err = jsonFile(data)
		} else {
			scores, err = numberFile(data, f.Score)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		if found == nil {
			found, where = scores, f.Path
		} else if diff := contradiction(found, scores); diff != "" {
			return nil, bad("%s and %s contradict each other: %s", where, f.Path, diff)
		}
	}
	if found == nil {
		names := make([]string, len(files))
		for i, f := range files {
			names[i] = f.Path
		}
		return nil, bad("the tests wrote none of %s", strings.Join(names, ", "))
	}
	return found, nil
}
