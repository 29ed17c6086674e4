package slurm_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/executors/slurm"
)

// commands puts commands with these bodies into PATH. They are not a scheduler: tests of
// one run the real Slurm (internal/e2e/slurm).
func commands(t *testing.T, bodies map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sbatch", "squeue", "scancel"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+bodies[name]+"\n"), 0o755); err != nil { //nolint:gosec // to be executed
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

func job(t *testing.T) slurm.Job {
	t.Helper()
	return slurm.Job{
		ID: "0123456789abcdef0123", Run: "/shared/it's a run", Berth: "/opt/berth", Dir: t.TempDir(), Home: "/home/me", User: "me", Args: []string{"--in-flight", "4"},
		Setup: "export PATH=/opt/tools:$PATH SECRET=canary", Grace: 2 * time.Minute, Time: 90*time.Minute + time.Second, CPUs: 4, Memory: 2048,
		Partition: "cpu", Options: []string{"--exclusive"},
	}
}

// The script runs berth with its arguments, whatever is in their names, and with
// nothing in its environment but what the script names.
func TestTheScriptOfAJob(t *testing.T) { //nolint:paralleltest // it changes PATH
	commands(t, nil)
	j := job(t)
	j.Berth = filepath.Join(t.TempDir(), "berth")
	if err := os.WriteFile(j.Berth, []byte("#!/bin/sh\nprintf '<%s>\\n' \"$@\"; env\n"), 0o755); err != nil { //nolint:gosec // to be executed
		t.Fatal(err)
	}
	s, err := slurm.New(j)
	if err != nil {
		t.Fatal(err)
	}
	script := s.Script([]string{"pilot", j.Run, "--in-flight", "4"}, true)
	if n := strings.Count(script, "\n"); n > 22 {
		t.Errorf("the script has %d lines", n)
	}
	cmd := exec.CommandContext(t.Context(), "sh")
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "SLURM_JOB_ID=7", "ANTHROPIC_API_KEY=canary"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"<pilot>\n<" + j.Run + ">\n<--in-flight>\n<4>\n<--time>\n<54", "PATH=/opt/tools:", "SLURM_JOB_ID=7\n", "SLURM_RESTART_COUNT=0\n", "HOME=/home/me\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "canary") {
		t.Errorf("a variable that is not named reached the pilot:\n%s", out)
	}
}

func TestWhatIsSubmitted(t *testing.T) { //nolint:paralleltest // it changes PATH
	dir := commands(t, map[string]string{"sbatch": `echo "$@" > "$(dirname "$0")/args"; cat > /dev/null; echo "42;site"`})
	j := job(t)
	j.Run += " of 100%j"
	s, err := slurm.New(j)
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := s.Submit(t.Context(), 3)
	if err != nil || strings.Join(jobs, " ") != "42_0 42_1 42_2" {
		t.Fatalf("%q, %v", jobs, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"--array=0-2 ", "--export=NIL ", "--requeue ", "--signal=B:TERM@120 ", "--partition=cpu ", "--time=0-01:31:00 ", "--cpus-per-task=4 ", "--mem=2048M ",
		"--job-name=berth-0123456789abcdef ", " of 100%%j/cluster/log/%A_%a.out ", "--exclusive",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q in %s", want, b)
		}
	}
	if jobs, err = s.Submit(t.Context(), 5000); err != nil || len(jobs) != 1000 || jobs[999] != "42_999" {
		t.Errorf("of 5000 pilots, an array had %d: %v", len(jobs), err)
	}
	if strings.Contains(string(b), "--account") || strings.Contains(string(b), "--gpus") {
		t.Errorf("options that nobody asked for: %s", b)
	}
}

// Errors have the scheduler's own words. Limits that pass are tried again.
func TestWhatSlurmRefuses(t *testing.T) { //nolint:paralleltest // it changes PATH
	for _, tt := range []struct {
		said, want string
		later      bool
	}{
		{"sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed: Invalid partition name specified", "Invalid partition name specified", false},
		{"sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified", "Invalid account", false},
		{"sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "the account has submitted as many jobs as it may (AssocMaxSubmitJobLimit); Batch job submission failed", true},
		{"sbatch: error: QOSGrpSubmitJobsLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "QOSGrpSubmitJobsLimit", true},
		{"sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "Job violates", true},
		{"sbatch: error: QOSMaxWallDurationPerJobLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "time is above the limit of the quality of service", false},
		{"sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", "Unable to contact", true},
		{"", "exit status 1", false},
	} {
		commands(t, map[string]string{"sbatch": "cat > /dev/null; cat >&2 <<'END'\n" + tt.said + "\nEND\nexit 1"})
		s, err := slurm.New(job(t))
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Submit(t.Context(), 1)
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, cluster.ErrLater) != tt.later || strings.Contains(err.Error(), "error:") {
			t.Errorf("%q: %v; want %q, later %v", tt.said, err, tt.want, tt.later)
		}
	}
}

func TestTheStateOfJobs(t *testing.T) { //nolint:paralleltest // it changes PATH
	commands(t, map[string]string{"squeue": `printf '%s\n' '42_0|RUNNING|None' '42_1|PENDING|Resources' '42_2|PENDING|ReqNodeNotAvail, UnavailableNodes:n1' '42_3|COMPLETING|None' '42_4|PENDING|SomethingNew' rubbish`})
	s, err := slurm.New(job(t))
	if err != nil {
		t.Fatal(err)
	}
	states, err := s.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, st := range states {
		got = append(got, st.Job+" "+st.Waits)
	}
	want := "42_0 ; 42_1 no node is free (Resources); 42_2 nodes that it needs are drained, down or reserved (ReqNodeNotAvail, UnavailableNodes:n1); 42_4 SomethingNew"
	if strings.Join(got, "; ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "; "), want)
	}
}

func TestAMachineWithoutSlurmIsRefused(t *testing.T) { //nolint:paralleltest // it changes PATH
	t.Setenv("PATH", t.TempDir())
	if _, err := slurm.New(slurm.Job{}); err == nil || !strings.Contains(err.Error(), "sbatch is not on this machine") {
		t.Error(err)
	}
}

// A job that starts again, and each job of an array, has a pilot of its own name.
func TestThePilotOfAJob(t *testing.T) {
	t.Parallel()
	array := map[string]string{"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2", "SLURM_RESTART_COUNT": "3", "SLURM_TMPDIR": "/l"}
	for _, tt := range []struct {
		env  map[string]string
		want slurm.Here
		in   bool
	}{
		{nil, slurm.Here{}, false},
		{map[string]string{"SLURM_JOB_ID": "../x"}, slurm.Here{}, false},
		{map[string]string{"SLURM_JOB_ID": "7"}, slurm.Here{Pilot: "slurm-7-0", Job: "7"}, true},
		{array, slurm.Here{Pilot: "slurm-9-3", Job: "7_2", Scratch: "/l"}, true},
	} {
		got, in := slurm.InJob(func(name string) (string, bool) { v, ok := tt.env[name]; return v, ok })
		if got != tt.want || in != tt.in {
			t.Errorf("%v: %+v, %v; want %+v, %v", tt.env, got, in, tt.want, tt.in)
		}
	}
}
