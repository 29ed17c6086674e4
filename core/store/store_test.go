package store_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/environment"
)

// TestMain keeps locks and places of the tests out of the user's own folder.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp(testlevel.Tmp(), "bst")
	if err == nil {
		err = os.Setenv(node.EnvDir, dir)
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// manifest makes a plan of n trials in one cell.
func manifest(n int) *store.Manifest {
	m := &store.Manifest{
		Header: store.Header{Experiment: "exp", Berth: "test", Dir: "/exp"},
		Cells:  []store.Cell{{Key: "agent=a", Slug: "a", Choices: map[string]string{"agent": "a"}, Agent: "a", Environment: "e"}},
	}
	for i := range n {
		id := strings.Repeat("0", 60) + string(rune('a'+i/26)) + string(rune('a'+i%26)) + "00"
		m.Trials = append(m.Trials, store.Trial{
			ID: id, Dir: store.TrialDir("task", "a", i+1, id), Task: "task", TaskDigest: "sha256:1", Dataset: "d", Repetition: i + 1,
		})
	}
	return m
}

func create(t *testing.T, n int) *store.Run {
	t.Helper()
	r, err := store.Create(t.TempDir(), manifest(n), []store.File{{Name: "exp.hcl", Bytes: []byte("experiment {}")}})
	testlevel.Must(t, err)
	return r
}

func result(r *store.Run, i int, o record.Outcome) record.Result {
	now := time.Now().UTC()
	return record.Result{Version: 1, Trial: r.Manifest.Trials[i].ID, Outcome: o, Start: now, End: now, Phases: []record.Phase{}}
}

// attempt makes and publishes an attempt of trial i.
func attempt(t *testing.T, r *store.Run, i int, o record.Outcome) *store.Attempt {
	t.Helper()
	a, err := r.Begin(r.Manifest.Trials[i].ID)
	if err == nil {
		err = a.Append(record.EventsFile, map[string]string{"type": "x"})
	}
	if err == nil {
		err = a.Publish(result(r, i, o))
	}
	testlevel.Must(t, err)
	return a
}

func read(t *testing.T, dir string) *store.Index {
	t.Helper()
	_, x, err := store.Read(dir)
	testlevel.Must(t, err)
	return x
}

func TestARunIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	r := create(t, 3)
	attempt(t, r, 0, record.Passed)
	attempt(t, r, 1, record.EnvironmentError)
	attempt(t, r, 1, record.Failed)
	testlevel.Must(t, errors.Join(r.Note("something"), r.Accept("agent a: x → y"), r.Close()))
	x := read(t, r.Dir)
	want := []record.Outcome{record.Passed, record.Failed, record.NotRun}
	for i, tr := range x.Trials {
		if got := tr.Outcome(); got != want[i] {
			t.Errorf("trial %d: outcome %s, want %s", i, got, want[i])
		}
	}
	if n := len(x.Trials[1].Attempts); n != 2 {
		t.Errorf("trial 1 has %d attempts, want 2: attempts are kept for ever", n)
	}
	if len(x.Notes) != 2 || x.Notes[1].Accepted == "" {
		t.Errorf("notes: %+v", x.Notes)
	}
	if len(x.Writers) != 1 || !x.Writers[0].Ended || x.Torn+x.Damaged != 0 {
		t.Errorf("writers %+v, torn %d, damaged %d", x.Writers, x.Torn, x.Damaged)
	}
	b, err := os.ReadFile(filepath.Join(r.Dir, store.ExperimentDir, "exp.hcl"))
	if err != nil || string(b) != "experiment {}" {
		t.Errorf("the experiment is kept as %q, %v", b, err)
	}
}

func TestWhatAttemptIsAccepted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		outcomes []record.Outcome
		want     int
	}{
		"none":                               {nil, 0},
		"the last that settles":              {[]record.Outcome{record.EnvironmentError, record.Passed}, 2},
		"cancelled after an error":           {[]record.Outcome{record.EnvironmentError, record.Cancelled}, 1},
		"nothing settles":                    {[]record.Outcome{record.Cancelled, record.Preempted}, 2},
		"a settled one before and after":     {[]record.Outcome{record.Failed, record.Cancelled, record.EnvironmentError}, 3},
		"cancelled, then run when resumed":   {[]record.Outcome{record.Cancelled, record.Passed}, 2},
		"preempted in the middle of retries": {[]record.Outcome{record.RateLimited, record.Preempted, record.RateLimited}, 3},
	} {
		ts := &store.TrialState{Trial: &store.Trial{}}
		for i, o := range tt.outcomes {
			ts.Attempts = append(ts.Attempts, store.AttemptState{Number: i + 1, Result: &store.Brief{Outcome: o}})
		}
		got := 0
		if a := ts.Accepted(); a != nil {
			got = a.Number
		}
		if got != tt.want {
			t.Errorf("%s: accepted %d, want %d", name, got, tt.want)
		}
	}
}

// A killed writer leaves a folder without a result: it does not count, and the
// next attempt gets a new number.
func TestAnAttemptThatWasNotPublishedDoesNotCount(t *testing.T) {
	t.Parallel()
	r := create(t, 1)
	a, err := r.Begin(r.Manifest.Trials[0].ID)
	testlevel.Must(t, errors.Join(err, a.Append(record.StepsFile, 1), r.Close()))
	r, err = store.Open(r.Dir, "test", false)
	testlevel.Must(t, err)
	b := attempt(t, r, 0, record.Passed)
	if b.Number() != 2 {
		t.Errorf("the second attempt has number %d", b.Number())
	}
	testlevel.Must(t, r.Close())
	x := read(t, r.Dir)
	if got := x.Trials[0].Attempts; len(got) != 2 || got[0].Result != nil || got[1].Result == nil {
		t.Errorf("attempts: %+v", got)
	}
	if data, err := os.ReadFile(filepath.Join(a.Dir(), record.StepsFile)); err != nil || string(data) != "1\n" {
		t.Errorf("what the first attempt wrote is %q, %v", data, err)
	}
}

// A kill between the rename of result.json and the line in the journal loses
// nothing, and the next process counts the result once.
func TestAResultThatNoJournalKnowsIsFound(t *testing.T) {
	t.Parallel()
	r := create(t, 1)
	a, err := r.Begin(r.Manifest.Trials[0].ID)
	testlevel.Must(t, err)
	res := result(r, 0, record.Passed)
	b, err := json.Marshal(res)
	if err == nil {
		err = os.WriteFile(filepath.Join(a.Dir(), record.ResultFile), b, 0o600)
	}
	testlevel.Must(t, errors.Join(err, r.Close()))
	for range 3 { // the second and third time it is in a journal
		if got := read(t, r.Dir).Trials[0]; got.Outcome() != record.Passed || len(got.Attempts) != 1 {
			t.Fatalf("outcome %s, attempts %+v", got.Outcome(), got.Attempts)
		}
		if r, err = store.Open(r.Dir, "test", false); err != nil {
			t.Fatal(err)
		}
		testlevel.Must(t, r.Close())
	}
}

func TestAResultOfAnotherTrialIsNotBelieved(t *testing.T) {
	t.Parallel()
	r := create(t, 2)
	a, err := r.Begin(r.Manifest.Trials[0].ID)
	testlevel.Must(t, err)
	b, err := json.Marshal(result(r, 1, record.Passed))
	if err == nil {
		err = os.WriteFile(filepath.Join(a.Dir(), record.ResultFile), b, 0o600)
	}
	testlevel.Must(t, errors.Join(err, r.Close()))
	for i, tr := range read(t, r.Dir).Trials {
		if tr.Outcome() != record.NotRun {
			t.Errorf("trial %d: %s", i, tr.Outcome())
		}
	}
}

func TestAnAttemptIsPublishedOnce(t *testing.T) {
	t.Parallel()
	r := create(t, 1)
	a := attempt(t, r, 0, record.Failed)
	if err := a.Publish(result(r, 0, record.Passed)); err == nil {
		t.Error("a second result was taken")
	}
	if err := a.Append(record.EventsFile, 1); err == nil {
		t.Error("a published attempt was written to")
	}
	if err := errors.Join(a.Abandon(), r.Close()); err != nil {
		t.Error(err)
	}
	if o := read(t, r.Dir).Trials[0].Outcome(); o != record.Failed {
		t.Errorf("outcome %s", o)
	}
}

func TestTwoRunsOfOneSecondHaveTwoFolders(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var dirs []string
	for range 2 {
		m := manifest(1)
		m.Header.Created = at
		r, err := store.Create(parent, m, nil)
		testlevel.Must(t, err)
		testlevel.Must(t, r.Close())
		dirs = append(dirs, filepath.Base(r.Dir))
	}
	if dirs[0] != "exp-20260102T030405Z" || dirs[1] != "exp-20260102T030405Z-2" {
		t.Errorf("folders: %q", dirs)
	}
}

func TestFilesOutsideAreKeptInside(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	r, err := store.Create(parent, manifest(1), []store.File{
		{Name: "a/b.hcl", Bytes: []byte("1")}, {Name: "/etc/x.txt", Bytes: []byte("2")}, {Name: "../../y.txt", Bytes: []byte("3")},
	})
	testlevel.Must(t, err)
	testlevel.Must(t, r.Close())
	for name, want := range map[string]string{"a/b.hcl": "1", "outside/etc/x.txt": "2", "outside/y.txt": "3"} {
		b, err := os.ReadFile(filepath.Join(r.Dir, store.ExperimentDir, name))
		if err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

func TestNamesThatLeadOutAreRefused(t *testing.T) {
	t.Parallel()
	r := create(t, 1)
	a, err := r.Begin(r.Manifest.Trials[0].ID)
	testlevel.Must(t, err)
	for _, name := range []string{"", "..", "../x", "/x", "a/../../x"} {
		if a.Append(name, 1) == nil || a.WriteFile(name, nil) == nil || r.WriteFile(name, nil) == nil {
			t.Errorf("%q was written", name)
		}
	}
	if err = errors.Join(a.Abandon(), r.Close()); err != nil {
		t.Error(err)
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain": "plain", "org/name": "org_name", "../../etc/passwd": "etc_passwd", "a\x00b\x1b[31m": "a_b_31m", "": "x", "...": "x",
		"-rf": "rf", "täsk": "t_sk", "日本": "x", "a b\tc": "a_b_c", strings.Repeat("a", 300): strings.Repeat("a", 20), ".hidden": "hidden",
	} {
		if got := store.Name(in, 20); got != want {
			t.Errorf("Name(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzNameIsSafe(f *testing.F) {
	for _, s := range []string{"", "..", "a/b", "\x00", "-", "日本", "a\\b", "CON"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n := store.Name(s, 40)
		if n == "" || len(n) > 40 || !filepath.IsLocal(n) || strings.ContainsAny(n, "/\\\x00 ") || n[0] == '.' || n[0] == '-' {
			t.Errorf("Name(%q) = %q", s, n)
		}
	})
}

func TestABriefHasWhatResumeCompares(t *testing.T) {
	t.Parallel()
	usd := 0.25
	b := store.BriefOf(&record.Result{
		Task: "t", Outcome: record.EnvironmentError, Error: &record.Error{Boundary: record.ByEnvironment, Message: "gone", Retry: true},
		Plugins: []record.PluginUsed{{Kind: "environment", Name: "e", Digest: "sha256:1"}, {Kind: "agent", Name: "a", Digest: "sha256:2"}},
		Image:   &environment.ImageFacts{Digest: "sha256:3"},
		Usage:   []record.Usage{{Requests: 2, InputTokens: 10, OutputTokens: 5, CostUSD: &usd}, {Requests: 1, InputTokens: 1}},
	})
	// A task may have a different image in another environment.
	want := map[string]string{"environment e": "sha256:1", "agent a": "sha256:2", "image of t in e": "sha256:3"}
	if !maps.Equal(b.Digests, want) {
		t.Errorf("digests %v, want %v", b.Digests, want)
	}
	if b.Error != "environment: gone" || !b.Retryable || b.Tokens != 16 || b.Requests != 3 || *b.CostUSD != 0.25 || !b.Unpriced {
		t.Errorf("brief: %+v", b)
	}
}

// The journal has the beginning of a long error and its cause, which is its end.
func TestABriefKeepsTheCauseOfAnError(t *testing.T) {
	t.Parallel()
	message := "image build failed: Dockerfile in " + strings.Repeat("dir/", 200) + "task: no such program: gcc"
	b := store.BriefOf(&record.Result{Error: &record.Error{Boundary: record.ByEnvironment, Message: message}})
	if len(b.Error) > 410 || !strings.HasPrefix(b.Error, "environment: image build failed") || !strings.HasSuffix(b.Error, "no such program: gcc") {
		t.Errorf("%q", b.Error)
	}
}

// An agent chooses the names of artifacts. The list must still be the one that an
// audit computes again.
func TestChecksumsOfAnyNameSurviveJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"plain", "größe", "a\xffb", "a\xfeb", "\ufffd", `"quoted"`} {
		testlevel.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	is, err := store.ChecksumsOf(dir)
	if err != nil || len(is.Files) != 6 {
		t.Fatalf("%v, %v", is, err)
	}
	b, err := json.Marshal(is)
	testlevel.Must(t, err)
	var was store.Checksums
	if err = json.Unmarshal(b, &was); err != nil || !maps.Equal(is.Files, was.Files) {
		t.Errorf("read back as %q, want %q; %v", was.Files, is.Files, err)
	}
}

// A writer that is killed after its result has its name leaves what it copied from.
func TestWhatAKilledWriterLeftIsNotListed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"steps.jsonl", ".worker.part/result.json", ".settled.part", "artifacts/.mine.part"} {
		file := filepath.Join(dir, name)
		testlevel.Must(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, nil, 0o600)))
	}
	is, err := store.ChecksumsOf(dir)
	if got := slices.Sorted(maps.Keys(is.Files)); err != nil || !slices.Equal(got, []string{"artifacts/.mine.part", "steps.jsonl"}) {
		t.Errorf("listed %q, %v", got, err)
	}
}
