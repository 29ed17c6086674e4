package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

const (
	rewardJSON = "/logs/verifier/reward.json"
	rewardText = "/logs/verifier/reward.txt"
)

// fake is a sandbox that consists of files.
type fake struct {
	sandbox.Shell

	files  map[string]string
	faults map[string]error // of Read
	stuck  bool             // files cannot be removed
	ran    sandbox.Command
	run    func(f *fake, c sandbox.Command) (sandbox.Result, error)
}

// Exec plays the test program, or rm.
func (f *fake) Exec(_ context.Context, c sandbox.Command) (r sandbox.Result, err error) {
	if c.Argv[0] == "rm" {
		if !f.stuck {
			delete(f.files, c.Argv[len(c.Argv)-1])
		}
		return r, nil
	}
	for _, q := range c.Read {
		if _, there := f.files[q.Path]; there && c.Unwritten {
			return r, sandbox.ErrExists
		}
	}
	f.ran = c
	if f.run != nil {
		r, err = f.run(f, c)
	}
	for _, q := range c.Read {
		data, unread := f.read(q.Path, q.Limit)
		r.Read = append(r.Read, sandbox.Answer{Data: data, Err: unread})
	}
	return r, err
}

func (f *fake) read(path string, limit int64) ([]byte, error) {
	if err := f.faults[path]; err != nil {
		return nil, err
	}
	data, ok := f.files[path]
	switch {
	case !ok:
		return nil, fmt.Errorf("read %s: %w", path, sandbox.ErrNotFound)
	case int64(len(data)) > limit:
		return nil, fmt.Errorf("read %s: %w", path, sandbox.ErrTooLarge)
	}
	return []byte(data), nil
}

func (f *fake) Lstat(_ context.Context, path string) (sandbox.FileInfo, error) {
	if _, ok := f.files[path]; !ok {
		return sandbox.FileInfo{}, sandbox.ErrNotFound
	}
	return sandbox.FileInfo{}, nil
}

// writes plays a test program that writes files.
func writes(files map[string]string) func(*fake, sandbox.Command) (sandbox.Result, error) {
	return func(f *fake, _ sandbox.Command) (sandbox.Result, error) {
		maps.Copy(f.files, files)
		return sandbox.Result{}, nil
	}
}

func request(t *testing.T) verifier.Request {
	t.Helper()
	settings, err := json.Marshal(task.Script{
		Command: []string{"bash", "/tests/test.sh"},
		Rewards: []task.RewardFile{{Path: rewardJSON, Kind: "json"}, {Path: rewardText, Kind: "number", Score: "reward"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return verifier.Request{Settings: settings, Scratch: t.TempDir(), User: "bob", Env: map[string]string{"B": "2", "A": "1"}}
}

func verified(t *testing.T, f *fake, r verifier.Request) (verifier.Verdict, error) {
	t.Helper()
	if f.files == nil {
		f.files = map[string]string{}
	}
	return verify(t.Context(), f, r, func(string) {})
}

func TestRewards(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		json, text string // contents; "-" is absent
		want       map[string]float64
		err        string
	}{
		{name: "one", json: "-", text: "1\n", want: map[string]float64{"reward": 1}},
		{name: "fraction", json: "-", text: " 0.25 ", want: map[string]float64{"reward": 0.25}},
		{name: "object", json: `{"reward": 1, "speed": 0.5}`, text: "-", want: map[string]float64{"reward": 1, "speed": 0.5}},
		{name: "booleans", json: `{"a": true, "b": false}`, text: "-", want: map[string]float64{"a": 1, "b": 0}},
		{name: "both agree", json: `{"reward": 1.0, "x": 2}`, text: "1", want: map[string]float64{"reward": 1, "x": 2}},
		{name: "both, nothing in common", json: `{"x": 2}`, text: "1", want: map[string]float64{"x": 2}},
		{name: "same twice", json: `{"x": 2, "x": 2.0}`, text: "-", want: map[string]float64{"x": 2}},

		{name: "none", json: "-", text: "-", err: "wrote none of"},
		{name: "first broken", json: `{"reward": x}`, text: "1", err: "not JSON"},
		{name: "first empty", json: "", text: "1", err: "empty"},
		{name: "empty text", json: "-", text: " \n", err: "empty"},
		{name: "NaN", json: "-", text: "nan", err: "not a decimal"},
		{name: "a decimal comma", json: "-", text: "0,5", err: "not a decimal"},
		{name: "infinite", json: "-", text: "inf", err: "not a decimal"},
		{name: "overflow", json: "-", text: "1e400", err: "not a decimal"},
		{name: "hexadecimal", json: "-", text: "0x1p4", err: "not a decimal"},
		{name: "words", json: "-", text: "true", err: "not a decimal"},
		{name: "huge", json: "-", text: strings.Repeat("1", 65<<10), err: "more than 64 KiB"},
		{name: "NaN in JSON", json: `{"reward": NaN}`, text: "-", err: "not JSON"},
		{name: "overflow in JSON", json: `{"reward": 1e400}`, text: "-", err: "not a decimal"},
		{name: "text in JSON", json: `{"reward": "1"}`, text: "-", err: "neither"},
		{name: "null", json: `{"reward": null}`, text: "-", err: "neither"},
		{name: "list", json: `[1]`, text: "-", err: "want an object"},
		{name: "empty object", json: `{}`, text: "-", err: "no score"},
		{name: "cut off", json: `{"reward": 1`, text: "-", err: "not JSON"},
		{name: "followed by more", json: `{"reward": 1}{}`, text: "-", err: "follows"},
		{name: "contradicting itself", json: `{"reward": 1, "reward": 0}`, text: "-", err: "twice"},
		{name: "name without letters", json: `{"": 1}`, text: "-", err: "name of a score"},
		{name: "name with escapes", json: `{"\u001b[2J": 1}`, text: "-", err: "name of a score"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v, err := verified(t, &fake{run: writes(rewardFiles(tt.json, tt.text))}, request(t))
			if tt.err == "" {
				wantScores(t, v, err, tt.want)
			} else if !errors.Is(err, verifier.ErrBadReward) || !strings.Contains(err.Error(), tt.err) || v.Scores != nil {
				t.Errorf("got %v, %v; want a bad reward with %q and no score", v.Scores, err, tt.err)
			}
		})
	}
}

// Many benchmarks write partial credit to reward.json and all or nothing to
// reward.txt. Harbor reads reward.json alone.
func TestTheFirstRewardFileCountsAlone(t *testing.T) {
	t.Parallel()
	for text, finding := range map[string]string{
		"0": `score "reward" is 0.6 in the first and 0 in the second`, "yes": "not a decimal", "": "empty", "0.6": "", "-": "",
	} {
		v, err := verified(t, &fake{run: writes(rewardFiles(`{"reward": 0.6}`, text))}, request(t))
		wantScores(t, v, err, map[string]float64{"reward": 0.6})
		switch {
		case finding == "" && len(v.Findings) > 0:
			t.Errorf("%q: got %+v, want no finding", text, v.Findings)
		case finding != "" && (len(v.Findings) != 1 || v.Findings[0].Severity != verifier.Note || !strings.Contains(v.Findings[0].Text, finding)):
			t.Errorf("%q: got %+v, want a note with %q", text, v.Findings, finding)
		}
	}
}

// rewardFiles makes files with these contents; "-" is not a file.
func rewardFiles(json, text string) map[string]string {
	files := map[string]string{rewardJSON: json, rewardText: text}
	maps.DeleteFunc(files, func(_, content string) bool { return content == "-" })
	return files
}

func wantScores(t *testing.T, v verifier.Verdict, err error, want map[string]float64) {
	t.Helper()
	if err != nil || v.Decision != verifier.Scored || len(v.Scores) != len(want) {
		t.Fatalf("got %+v, %v; want scores %v", v, err, want)
	}
	for name, value := range want {
		if got, ok := v.Scores[name]; !ok || got.Value != value {
			t.Errorf("score %q = %v, want %v", name, got, value)
		}
	}
}

func TestTheTestsRunAsTheTaskSays(t *testing.T) {
	t.Parallel()
	r := request(t)
	f := &fake{run: func(f *fake, c sandbox.Command) (sandbox.Result, error) {
		f.files[rewardText] = "0"
		_, err := fmt.Fprint(c.Stdout, "out ")
		if err == nil {
			_, err = fmt.Fprint(c.Stderr, "err")
		}
		return sandbox.Result{ExitCode: 1}, err
	}}
	v, err := verified(t, f, r)
	if err != nil || v.Scores["reward"].Value != 0 {
		t.Fatalf("got %+v, %v; want a reward of 0 whatever the exit code", v, err)
	}
	if !slices.Equal(f.ran.Argv, []string{"bash", "/tests/test.sh"}) || !f.ran.Sweep || f.ran.User != "bob" || !slices.Equal(f.ran.Env, []string{"A=1", "B=2"}) {
		t.Errorf("ran %+v", f.ran)
	}
	got, err := os.ReadFile(filepath.Join(r.Scratch, outputFile))
	if string(got) != "out err" || err != nil {
		t.Errorf("%s = %q, %v; want both streams", outputFile, got, err)
	}
	if !strings.Contains(v.Rationale, "exited with code 1") || !strings.Contains(v.Rationale, "out err") {
		t.Errorf("rationale %q, want the exit code and the output", v.Rationale)
	}
}

// A bad reward names the file with the output only if there is output.
func TestABadRewardNamesTheOutputThatThereIs(t *testing.T) {
	t.Parallel()
	for printed, names := range map[string]bool{"": false, "1 passed\n": true} {
		_, err := verified(t, &fake{run: func(f *fake, c sandbox.Command) (sandbox.Result, error) {
			f.files[rewardText] = "ok"
			_, err := fmt.Fprint(c.Stdout, printed)
			return sandbox.Result{}, err
		}}, request(t))
		if err == nil || strings.Contains(err.Error(), "see "+outputFile) != names {
			t.Errorf("printed %q: %v", printed, err)
		}
	}
}

func TestAStaleRewardThatStaysIsNoScore(t *testing.T) {
	t.Parallel()
	v, err := verified(t, &fake{files: map[string]string{rewardText: "1"}, stuck: true}, request(t))
	if !errors.Is(err, verifier.ErrBadReward) || v.Scores != nil {
		t.Errorf("got %+v, %v; want no reward", v.Scores, err)
	}
}

func TestTheRewardOfAVerifierBeforeIsNoFinding(t *testing.T) {
	t.Parallel()
	r := request(t)
	r.Earlier = []verifier.Verdict{{Decision: verifier.Scored}}
	v, err := verified(t, &fake{files: map[string]string{rewardText: "1"}, run: writes(map[string]string{rewardText: "0.5"})}, r)
	if err != nil || v.Scores["reward"].Value != 0.5 || len(v.Findings) != 0 {
		t.Errorf("got %+v, %v; want 0.5 and no finding", v, err)
	}
}

func TestASandboxThatFailsIsNotABadReward(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]*fake{
		"during the tests": {run: func(*fake, sandbox.Command) (sandbox.Result, error) { return sandbox.Result{}, sandbox.ErrGone }},
		"after the tests":  {faults: map[string]error{rewardJSON: sandbox.ErrGone}},
	} {
		v, err := verified(t, f, request(t))
		if !errors.Is(err, sandbox.ErrGone) || errors.Is(err, verifier.ErrBadReward) || v.Scores != nil {
			t.Errorf("%s: got %+v, %v; want ErrGone", name, v.Scores, err)
		}
	}
}

func TestSettingsAreReadStrictly(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		``:                  "settings",
		`{}`:                "required",
		`{"command":["a"]}`: "required",
		`{"comand":["a"]}`:  "comand",
		`{"command":["a"],"rewards":[{"path":"r","kind":"json"}]}`:       "absolute",
		`{"command":["a"],"rewards":[{"path":"/a/../r","kind":"json"}]}`: "clean",
		`{"command":["a"],"rewards":[{"path":"/r","kind":"yaml"}]}`:      "kind",
		`{"command":["a"],"rewards":[{"path":"/r","kind":"number"}]}`:    "name",
	} {
		if _, err := settingsOf(json.RawMessage(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("settingsOf(%s) = %v, want an error with %q", in, err, want)
		}
	}
}
