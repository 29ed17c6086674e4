package trial_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// again verifies the attempt of b again, with another verifier.
func again(t *testing.T, b *bench, r record.Result, j *judge) (*bench, record.Result) {
	t.Helper()
	c := newBench(t, does("false"), j)
	for name, other := range b.judges {
		if c.judges[name] == nil {
			c.judges[name] = other
		}
	}
	return c, c.regrade(t, b, r)
}

// regrade verifies the attempt of another bench again.
func (c *bench) regrade(t *testing.T, b *bench, r record.Result) record.Result {
	t.Helper()
	c.task = b.task
	in := c.input()
	in.Trial, in.Attempt = "t1", 2
	in.Origin = &trial.Origin{Number: 1, Dir: b.dir, Result: &r}
	out, err := trial.Run(t.Context(), in)
	testlevel.Must(t, err)
	if t.Failed() || out.Outcome == record.Failed {
		text, _ := os.ReadFile(filepath.Join(c.dir, "log")) //nolint:errcheck // for a person
		t.Logf("log: %s", text)
	}
	return out
}

func TestWhatIsKept(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, does, test string
		keep             trial.Keep
		files            bool
		note             string
	}{
		{"failed", "true", "false", trial.Keep{MaxBytes: 1 << 20}, true, ""},
		{"passed, of failed ones", "true", "true", trial.Keep{MaxBytes: 1 << 20}, false, ""},
		{"passed, of all", "true", "true", trial.Keep{MaxBytes: 1 << 20, Passed: true}, true, ""},
		{"too much", "head -c 3000000 /dev/urandom > /app/x", "false", trial.Keep{MaxBytes: 1 << 20}, false, "more than 1 MiB (keep_mib)"},
		{"nothing", "true", "false", trial.Keep{}, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, does(tt.does), tests(tt.test))
			in := b.input()
			in.Keep = tt.keep
			r, err := trial.Run(t.Context(), in)
			testlevel.Must(t, err)
			_, stat := os.Stat(filepath.Join(b.dir, record.FilesFile))
			left, _ := filepath.Glob(filepath.Join(b.dir, "*.part")) //nolint:errcheck // a valid pattern
			if (r.Files != "") != tt.files || (stat == nil) != tt.files || len(left) > 0 {
				t.Errorf("files %q (%v), left %q", r.Files, stat, left)
			}
			if said := pretty(r.Findings); tt.note != "" && !strings.Contains(said, tt.note) {
				t.Errorf("no %q in %s", tt.note, said)
			}
		})
	}
}

func TestWithoutFilesOnlyVerifiersWithoutASandboxJudgeAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, does("echo 1 > /logs/artifacts/x"), looks(func(verifier.Request) bool { return false }))
	r := b.run(t.Context(), t)
	want(t, r, record.Failed, record.Yielded, record.Checked)
	_, got := again(t, b, r, looks(func(v verifier.Request) bool {
		text, err := os.ReadFile(filepath.Join(v.View, "attempt", "artifacts", "logs", "artifacts", "x"))
		return err == nil && string(text) == "1\n"
	}))
	want(t, got, record.Passed, record.Yielded, record.Checked)
	if got.Regraded == nil || got.Regraded.Files {
		t.Errorf("origin %+v", got.Regraded)
	}
	_, got = again(t, b, r, tests("true"))
	if got.Outcome.Measured() || got.Error == nil || !strings.Contains(got.Error.Message, `"judge" needs the sandbox`) {
		t.Errorf("a verifier with a sandbox: %s", pretty(got))
	}
	b.task.Stages[0].Instruction[0].Text = "Do something else."
	_, got = again(t, b, r, looks(func(verifier.Request) bool { return true }))
	if got.Outcome.Measured() || got.Error == nil || !strings.Contains(got.Error.Message, "instruction of its task has changed") {
		t.Errorf("another instruction: %s", pretty(got))
	}
}

// A verifier's own sandbox has the artifacts of the origin, whether its files were
// kept or not, also if another verifier works in the sandbox with the files.
func TestAVerifierWithASandboxOfItsOwnJudgesAgain(t *testing.T) {
	t.Parallel()
	const script = `test "$(cat /app/out/answer)" = 42 && test -x /app/out/run && test "$(cat /app/x)" = 1 && ! test -e /app/other`
	for _, kept := range []bool{false, true} {
		b := newBench(t, does("mkdir -p /app/out; cd /app/out; echo 42 > answer; touch run; chmod 755 run; echo 1 > /app/x; touch /app/other"), owning("false"))
		b.task.Environment.Workdir = "/app"
		b.task.Stages[0].Artifacts = []task.Artifact{{Source: "/app/out"}, {Source: "x", To: "elsewhere"}, {Source: "/app/none"}}
		in := b.input()
		if kept {
			in.Keep = trial.Keep{MaxBytes: 64 << 20}
		}
		r, err := trial.Run(t.Context(), in)
		testlevel.Must(t, err)
		want(t, r, record.Failed, record.Yielded, record.Checked)
		_, got := again(t, b, r, owning(script))
		want(t, got, record.Passed, record.Yielded, record.Checked)
		if kept { // one that works in the sandbox with the files, too
			b.task.Stages[0].Verifiers = append(b.task.Stages[0].Verifiers, task.VerifierUse{Name: "other"})
			b.judges["other"] = tests("test -e /app/other")
			_, got = again(t, b, r, owning(script))
			want(t, got, record.Passed, record.Yielded, record.Checked)
		}
	}
}

func TestProcessesThatWereGradedCannotBeGradedAgain(t *testing.T) {
	t.Parallel()
	needs(t, listener)
	b := newBench(t, does(listener), tests("false"))
	b.task.Mode = task.ModeLive
	in := b.input()
	in.Keep = trial.Keep{MaxBytes: 64 << 20}
	r, err := trial.Run(t.Context(), in)
	testlevel.Must(t, err)
	_, got := again(t, b, r, tests(asks))
	if got.Outcome.Measured() || got.Error == nil || !strings.Contains(got.Error.Message, "processes that its agent left running are gone") {
		t.Errorf("%s", pretty(got))
	}
}

// What exposed an attempt that was kept is settled by verifying it again, in mode image.
func TestAnExposedAttemptIsVerifiedAgainInASandboxOfTheImage(t *testing.T) {
	t.Parallel()
	const (
		forges   = `printf '#!/bin/sh\necho 42\n' > /usr/local/bin/answer; chmod +x /usr/local/bin/answer`
		honestly = forges + `; echo 42 > /app/x`
		outside  = honestly + `; mkdir /app/bin; printf '#!/bin/sh\necho 1\n' > /app/bin/t; chmod +x /app/bin/t`
	)
	for _, tt := range []struct {
		name, does, test string
		verify           task.Mode
		outcome          record.Outcome
		integrity        record.Integrity
	}{
		{"the damage: a changed program decides", forges, `test "$(answer)" = 42`, "", record.Passed, record.Exposed},
		{"a changed program is not there", forges, `test "$(answer)" = 42`, task.ModeImage, record.Failed, record.Checked},
		{"a changed program that the tests do not use", honestly, `test "$(cat /app/x)" = 42`, task.ModeImage, record.Passed, record.Checked},
		{"a process was left", honestly + "; setsid sleep 300 >/dev/null 2>&1 &", `test "$(cat /app/x)" = 42`, task.ModeImage, record.Passed, record.Checked},
		{"a program where the tests look first is taken away", outside, `test "$(t)" = 1`, task.ModeImage, record.Failed, record.Checked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, does(tt.does), tests(tt.test))
			b.task.Mode = task.ModeLive
			if tt.does == outside {
				b.task.Stages[0].Verify.Env = task.Env{"PATH": {Text: "/app/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
			}
			in := b.input()
			in.Keep = trial.Keep{Passed: true, MaxBytes: 64 << 20}
			r, err := trial.Run(t.Context(), in)
			testlevel.Must(t, err)
			want(t, r, record.Passed, record.Yielded, record.Exposed)
			c := newBench(t, does("false"), tests(tt.test))
			c.cell.Verify = tt.verify
			got := c.regrade(t, b, r)
			want(t, got, tt.outcome, record.Yielded, tt.integrity)
		})
	}
}
