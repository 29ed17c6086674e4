package harborjob

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/berth-eval/berth/cmd/berth/internal/export"
	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// job unpacks the job in testdata, which the real Harbor made.
func job(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "job")
	a, err := txtar.ParseFile("testdata/job.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Files {
		write(t, filepath.Join(dir, filepath.FromSlash(f.Name)), string(f.Data))
	}
	return dir
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// read imports a job and returns the run.
func read(t *testing.T, job string) (*Imported, *export.Run) {
	t.Helper()
	done, err := Import(job, t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	runs, err := numbers.Read(done.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return done, &export.Run{Run: runs[0], Trials: runs[0].Index.Trials}
}

// brief is what a job says of a trial.
func brief(r *export.Run) map[string]string {
	all := map[string]string{}
	for _, t := range r.Index.Trials {
		s := string(t.Outcome())
		if a := t.Accepted(); a != nil {
			s += " " + string(a.Result.AgentEnd)
			if a.Result.Score != nil {
				s += map[bool]string{true: " 1", false: " 0"}[*a.Result.Score == 1]
			}
		}
		all[t.Task] = s
	}
	return all
}

func TestAJobOfHarborIsARun(t *testing.T) {
	t.Parallel()
	done, r := read(t, job(t))
	want := map[string]string{
		"import/passes": "passed yielded 1", "import/fails": "failed yielded 0", "import/times-out": "passed timeout 1", "import/no-reward": "verifier_error yielded",
		"import/exits": "failed yielded 0", "import/scores": "scored yielded", "import/two": "passed yielded 1",
	}
	if got := brief(r); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if len(done.Notes) != 0 || done.Trials != 7 || r.Manifest.Header.Imported != "harbor" || len(r.Manifest.Cells) != 1 || r.Manifest.Cells[0].Key != "agent=oracle" {
		t.Errorf("%+v, %+v", done, r.Manifest.Cells)
	}
	for _, tr := range r.Index.Trials {
		res, err := store.ReadResult(report.Folder(r.Dir, tr, 1))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(tr.TaskDigest, "sha256:") || len(tr.TaskDigest) != 71 || res.Integrity != record.Unknown || len(res.Phases) < 3 || res.AgentTime <= 0 || res.End.IsZero() {
			t.Errorf("%s: %+v", tr.Task, res)
		}
	}
}

// What an import and an export have in common is the same afterwards.
func TestThereAndBackAgain(t *testing.T) {
	t.Parallel()
	_, first := read(t, job(t))
	out := filepath.Join(t.TempDir(), "job")
	done, err := Export(first, out)
	if err != nil || done.Rows != 7 || len(done.Notes) != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	_, second := read(t, out)
	if a, b := brief(first), brief(second); !maps.Equal(a, b) {
		t.Errorf("there %v\nback  %v", a, b)
	}
	digests := func(r *export.Run) (all []string) {
		for _, tr := range r.Index.Trials {
			all = append(all, tr.Task+" "+tr.TaskDigest)
		}
		slices.Sort(all)
		return all
	}
	if a, b := digests(first), digests(second); !slices.Equal(a, b) {
		t.Errorf("digests of tasks\n%q\n%q", a, b)
	}
	for _, name := range []string{"artifacts/logs/artifacts/a.txt", "verifier/reward.txt", "verifier/test-stdout.txt"} {
		if files, globErr := filepath.Glob(filepath.Join(out, "import_passes*", filepath.FromSlash(name))); globErr != nil || len(files) != 1 {
			t.Errorf("%s: %q, %v", name, files, globErr)
		}
	}
	again := filepath.Join(t.TempDir(), "job")
	if _, err = Export(first, again); err != nil {
		t.Fatal(err)
	}
	same := func(dir string) string {
		b, err := os.ReadFile(filepath.Join(dir, resultFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if same(out) != same(again) {
		t.Error("two exports of the same run differ")
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	one, zero, half := 1.0, 0.0, 0.5
	began := &timing{Started: &timestamp{}}
	for _, tt := range []struct {
		exception string
		rewards   map[string]float64
		execution *timing
		outcome   record.Outcome
		end       record.AgentEnd
	}{
		{"", map[string]float64{"reward": one}, began, record.Passed, record.Yielded},
		{"", map[string]float64{"reward": half}, began, record.Failed, record.Yielded},
		{"", map[string]float64{"style": one}, began, record.Scored, record.Yielded},
		{"", nil, began, record.VerifierError, record.Yielded},
		{"AgentTimeoutError", map[string]float64{"reward": one}, began, record.Passed, record.Timeout},
		{"AgentTimeoutError", nil, began, record.AgentError, record.Timeout},
		{"ContextLengthExceededError", map[string]float64{"reward": zero}, began, record.Failed, record.Budget},
		{"AgentSafetyRefusalError", map[string]float64{"reward": zero}, began, record.Failed, record.Refused},
		{"NonZeroAgentExitCodeError", nil, began, record.AgentError, record.Crashed},
		{"EnvironmentStartTimeoutError", nil, nil, record.EnvironmentError, ""},
		{"ApiRateLimitError", map[string]float64{"reward": zero}, began, record.RateLimited, record.Yielded},
		{"ApiInternalServerError", map[string]float64{"reward": one}, began, record.ModelError, record.Yielded},
		{"VerifierTimeoutError", nil, began, record.VerifierError, record.Yielded},
		{"CancelledError", nil, nil, record.Cancelled, ""},
		{"SomethingElse", nil, nil, record.EnvironmentError, ""},
		{"SomethingElse", nil, began, record.AgentError, record.Yielded},
		{"SomethingElse", map[string]float64{"reward": one}, began, record.Passed, record.Yielded},
	} {
		r := &trialResult{Execution: tt.execution, Finished: &timestamp{}}
		if tt.exception != "" {
			r.Exception = &exception{Type: tt.exception}
		}
		if o, end, _ := r.outcome(tt.rewards); o != tt.outcome || end != tt.end {
			t.Errorf("%q with %v: %s %s, want %s %s", tt.exception, tt.rewards, o, end, tt.outcome, tt.end)
		}
	}
	if o, end, _ := (&trialResult{Execution: began}).outcome(nil); o != record.NotRun || end != "" {
		t.Errorf("a trial that has not ended is %s %s", o, end)
	}
	for _, o := range record.Outcomes { // each is exported as something that is imported as the same kind of thing
		typ := thrown(o, record.Yielded)
		if o == record.Passed || o == record.Failed || o == record.Scored {
			if typ != "" {
				t.Errorf("%s throws %s", o, typ)
			}
			continue
		}
		back, _, _ := (&trialResult{Execution: began, Exception: &exception{Type: typ}}).outcome(nil)
		if back.Infrastructure() != o.Infrastructure() && o != record.UserError && o != record.ArtifactMissing && o != record.IntegrityViolation {
			t.Errorf("%s becomes %s, which becomes %s", o, typ, back)
		}
	}
}

// A trial whose reward Harbor does not count is not measured. One that Harbor does
// count is, whatever its exception.
func TestAnInvalidRewardIsNotMeasured(t *testing.T) {
	t.Parallel()
	thrown := func(typ string) string { return `"exception_info": {"exception_type": "` + typ + `"}, ` }
	for name, tt := range map[string]struct {
		text    string
		outcome record.Outcome
		end     record.AgentEnd
	}{
		"valid":            {`"reward_valid": true`, record.Passed, record.Yielded},
		"not valid":        {`"reward_valid": false`, record.EnvironmentError, record.Yielded},
		"late, not valid":  {thrown("AgentTimeoutError") + `"reward_valid": false`, record.EnvironmentError, record.Timeout},
		"rate, valid":      {thrown("ApiRateLimitError") + `"reward_valid": true`, record.Passed, record.Yielded},
		"rate":             {thrown("ApiRateLimitError") + `"reward_valid": false`, record.RateLimited, record.Yielded},
		"tests, not valid": {thrown("VerifierTimeoutError") + `"reward_valid": false`, record.EnvironmentError, record.Yielded},
		"unknown":          {thrown("FooError") + `"reward_valid": true`, record.Passed, record.Yielded},
	} {
		r := &trialResult{}
		text := `{"verifier_result": {"rewards": {"reward": 1}}, "agent_execution": {"started_at": "2026-11-20T10:00:00Z"}, ` + tt.text + `}`
		if err := json.Unmarshal([]byte(text), r); err != nil {
			t.Fatal(name, err)
		}
		if o, end, _ := r.outcome(r.rewards()); o != tt.outcome || end != tt.end {
			t.Errorf("%s: %s %s, want %s %s", name, o, end, tt.outcome, tt.end)
		}
	}
}

// A job that a stranger made, or that was cut off, is read as far as it goes.
func TestADamagedJob(t *testing.T) {
	t.Parallel()
	dir := job(t)
	trials, err := filepath.Glob(filepath.Join(dir, "*__*"))
	if err != nil || len(trials) != 7 {
		t.Fatal(trials, err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "key")
	write(t, filepath.Join(trials[0], resultFile), `{"task_name": `)
	write(t, filepath.Join(trials[1], configFile), `[]`)
	if err = errors.Join(os.Remove(filepath.Join(trials[2], resultFile)), os.Symlink(secret, filepath.Join(trials[3], "verifier", "link"))); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "odd", configFile), `{"task": {"path": "x"}}`)
	huge := map[string]any{"task_name": "../../../etc/passwd\x1b[31m", "verifier_result": map[string]any{"rewards": map[string]any{"reward": nil}}}
	b, err := json.Marshal(huge)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "odd", resultFile), string(b))
	done, r := read(t, dir)
	notes := strings.Join(done.Notes, "\n")
	for _, want := range []string{"not_run: " + filepath.Join(trials[0], resultFile), ": left out: " + filepath.Join(trials[1], configFile), "it was not finished", "not a regular file: a link"} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes lack %q:\n%s", want, notes)
		}
	}
	if done.Trials != 7 {
		t.Errorf("%d trials", done.Trials)
	}
	ran := 0
	for _, tr := range r.Index.Trials {
		if tr.Accepted() != nil {
			ran++
		}
		if !filepath.IsLocal(filepath.FromSlash(tr.Dir)) || strings.Contains(tr.Dir, "/") {
			t.Errorf("folder %q", tr.Dir)
		}
	}
	if ran != 5 {
		t.Errorf("%d trials ran", ran)
	}
	if _, err := Import(t.TempDir(), t.TempDir(), "test"); err == nil || !strings.Contains(err.Error(), "has no trials") {
		t.Errorf("an empty folder: %v", err)
	}
}
