// Package slurm starts pilots as jobs of Slurm, with its commands sbatch, squeue and
// scancel.
//
// It must not keep its own state: the run folder is the state. It never asks
// sacct, which many sites do not have.
package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/run/cluster"
)

// Job is what pilots are submitted with. Run and Berth are absolute paths.
type Job struct {
	ID     string // of the run; the name of its jobs comes from it
	Run    string // folder of the run
	Berth  string // this program
	Dir    string // folder in which pilots start
	Home   string
	User   string
	Args   []string // further arguments of berth pilot
	Setup  string   // shell lines that run first
	Grace  time.Duration
	Time   time.Duration // limit of a job; 0: that of the partition
	CPUs   int
	Memory int64 // MiB

	Partition, Account, QOS string

	Options []string // further options of sbatch
}

// Slurm is a cluster.Scheduler.
type Slurm struct{ job Job }

var _ cluster.Scheduler = (*Slurm)(nil)

// There fails if this machine cannot submit jobs.
func There() error {
	for _, command := range []string{"sbatch", "squeue", "scancel"} {
		if _, err := exec.LookPath(command); err != nil {
			return fmt.Errorf("executor \"slurm\": %s is not on this machine: start the run where jobs are submitted, such as a login node, or start pilots yourself with executor \"pilots\"", command)
		}
	}
	return nil
}

// New makes a scheduler. Fails if this machine cannot submit jobs.
func New(j Job) (*Slurm, error) { return &Slurm{j}, There() }

// name is the name of the jobs of a run.
func (s *Slurm) name() string { return "berth-" + s.job.ID[:min(16, len(s.job.ID))] }

// largest is the most jobs of an array that a site allows unless it says otherwise
// (MaxArraySize).
const largest = 1000

// Submit implements cluster.Scheduler.
func (s *Slurm) Submit(ctx context.Context, n int) ([]string, error) {
	n = min(n, largest)
	pilot := append([]string{"pilot", s.job.Run}, s.job.Args...)
	id, err := s.sbatch(ctx, s.Script(pilot, true), s.likePilot(fmt.Sprintf("--array=0-%d", n-1),
		"--output="+plain(filepath.Join(s.job.Run, filepath.FromSlash(cluster.LogDir)))+"/%A_%a.out"))
	if err != nil {
		return nil, err
	}
	jobs := make([]string, n)
	for i := range jobs {
		jobs[i] = fmt.Sprintf("%s_%d", id, i)
	}
	return jobs, nil
}

// Detach submits a job of one core that continues with the run as its coordinator, and
// returns its number. args are arguments of berth.
func (s *Slurm) Detach(ctx context.Context, args ...string) (string, error) {
	return s.sbatch(ctx, s.Script(args, false), append(s.options(), "--job-name="+s.name()+"-run", "--cpus-per-task=1",
		"--output="+plain(s.job.Run)+"/coordinator-%j.out"))
}

// likePilot are the options of a job that gets what a pilot gets.
func (s *Slurm) likePilot(more ...string) []string {
	args := append(s.options(), "--job-name="+s.name(), "--cpus-per-task="+strconv.Itoa(max(1, s.job.CPUs)))
	args = append(args, more...)
	if s.job.Memory > 0 {
		args = append(args, fmt.Sprintf("--mem=%dM", s.job.Memory))
	}
	return append(args, s.job.Options...)
}

// Reserved reports whether an option of sbatch would keep pilots from being submitted
// and found: without a script, as another array, under another name, or with an answer
// that is late or of another form.
func Reserved(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	if long, is := strings.CutPrefix(name, "--"); is {
		return slices.Contains([]string{"", "array", "wrap", "job-name", "wait", "test-only", "help", "usage", "version"}, long)
	}
	// A short option may have its value in the same word. Other words could be values.
	return name == "" || name == "-" || len(name) > 1 && name[0] == '-' && strings.ContainsRune("aJWhuV", rune(name[1]))
}

// options are the options of all jobs.
func (s *Slurm) options() []string {
	args := []string{
		"--parsable", "--nodes=1", "--ntasks=1", "--requeue", "--open-mode=append",
		"--export=NIL", // nothing of the user's environment, which may have keys
		fmt.Sprintf("--signal=B:TERM@%d", max(1, int(s.job.Grace.Seconds()))),
	}
	for option, value := range map[string]string{"partition": s.job.Partition, "account": s.job.Account, "qos": s.job.QOS} {
		if value != "" {
			args = append(args, "--"+option+"="+value)
		}
	}
	if s.job.Time > 0 {
		args = append(args, "--time="+limit(s.job.Time))
	}
	return args
}

// sbatch submits a script, and returns the number of the job.
func (s *Slurm) sbatch(ctx context.Context, script string, args []string) (string, error) {
	out, err := s.command(ctx, script, "sbatch", args...)
	if err != nil {
		return "", err
	}
	id, _, _ := strings.Cut(strings.TrimSpace(out), ";") // the cluster's name follows on some sites
	if _, err = strconv.Atoi(id); err != nil {
		return "", fmt.Errorf("sbatch: it answered %q, which is not a number of a job", out)
	}
	return id, nil
}

// limit is a time limit as Slurm reads it, rounded up to minutes because it counts
// in minutes.
func limit(d time.Duration) string {
	minutes := int64((d + time.Minute - 1) / time.Minute)
	return fmt.Sprintf("%d-%02d:%02d:00", minutes/(24*60), minutes/60%24, minutes%60)
}

// Script returns the script of a job that runs berth with some arguments. With
// addTime it also says how much time the job has left.
func (s *Slurm) Script(berth []string, addTime bool) string {
	j := &s.job
	args := []string{quote(j.Berth)}
	for _, a := range berth {
		args = append(args, quote(a))
	}
	timed := ""
	if j.Time > 0 && addTime {
		timed = fmt.Sprintf(" --time \"$((%d - $(date +%%s) + began))s\"", int(j.Time.Seconds()))
	}
	return fmt.Sprintf(`#!/bin/sh
# A job of a run of Berth. The environment has what is named here and nothing else.
began=$(date +%%s)
umask 022
export HOME=%s USER=%s LOGNAME=%s
export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}"
cd %s || exit 1
%s
exec env -i HOME="$HOME" USER="$USER" LOGNAME="$LOGNAME" PATH="$PATH" LANG="${LANG:-C.UTF-8}" \
  LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}" TMPDIR="${TMPDIR:-}" \
  SLURM_JOB_ID="$SLURM_JOB_ID" SLURM_ARRAY_JOB_ID="${SLURM_ARRAY_JOB_ID:-}" SLURM_ARRAY_TASK_ID="${SLURM_ARRAY_TASK_ID:-}" \
  SLURM_RESTART_COUNT="${SLURM_RESTART_COUNT:-0}" SLURM_TMPDIR="${SLURM_TMPDIR:-}" \
  %s%s
`, quote(j.Home), quote(j.User), quote(j.User), quote(j.Dir), j.Setup, strings.Join(args, " "), timed)
}

// plain is a path as Slurm writes it in a pattern for file names.
func plain(path string) string { return strings.ReplaceAll(path, "%", "%%") }

// quote makes s one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// State implements cluster.Scheduler.
func (s *Slurm) State(ctx context.Context) ([]cluster.JobState, error) {
	out, err := s.command(ctx, "", "squeue", "--noheader", "--array", "--me", "--name="+s.name(), "--format=%i|%T|%r")
	if err != nil {
		return nil, err
	}
	return statesIn(out), nil
}

// statesIn reads what squeue prints. A line that is not in its format is left out.
func statesIn(out string) (states []cluster.JobState) {
	for line := range strings.Lines(out) {
		fields := strings.SplitN(strings.TrimSpace(line), "|", 3)
		if len(fields) != 3 || fields[1] == "COMPLETING" {
			continue
		}
		j := cluster.JobState{Job: fields[0]}
		if fields[1] == "PENDING" {
			j.Waits = words(fields[2])
		}
		states = append(states, j)
	}
	return states
}

// Cancel implements cluster.Scheduler.
func (s *Slurm) Cancel(ctx context.Context, waiting bool) error {
	args := []string{"--me", "--name=" + s.name()}
	if waiting {
		args = append(args, "--state=PENDING")
	}
	_, err := s.command(ctx, "", "scancel", args...)
	return err
}

// command runs a command of Slurm, and returns what it prints. The error has its
// own words.
func (s *Slurm) command(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	text := strings.TrimSpace(said.String())
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if text == "" {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	text = strings.NewReplacer(name+": ", "", "error: ", "", "fatal: ", "", "\n", "; ").Replace(text)
	later := passes(text)
	// The reason, if there is one, comes first, in its own line.
	if reason, rest, more := strings.Cut(text, "; "); more && reasons[reason] != "" {
		text = words(reason) + "; " + rest
	}
	if later {
		return "", fmt.Errorf("%s: %s: %w", name, text, cluster.ErrLater)
	}
	return "", fmt.Errorf("%s: %w: %s", name, errRefused, text)
}

var errRefused = errors.New("refused")

// passes reports whether what Slurm says may be otherwise later.
func passes(text string) bool {
	// After a reason, the words for all limits follow. Without one it may be any.
	if strings.HasPrefix(text, "Batch job submission failed: Job violates accounting/QOS policy") {
		return true
	}
	return slices.ContainsFunc(passing, func(p string) bool { return strings.Contains(text, p) })
}

// passing are the words of Slurm for limits that pass, and for a controller that is
// away for a moment. The reasons for limits of submitted jobs, such as
// QOSMaxSubmitJobPerUserLimit, have the first in common. Limits of one job, such as
// QOSMaxWallDurationPerJobLimit, do not pass.
var passing = []string{
	"SubmitJob",
	"temporarily unable to accept job", "Unable to contact slurm controller", "Socket timed out", "Zero Bytes were transmitted", "Connection refused", "RPC rate limit",
}

// reasons are Slurm's reasons for a job that waits, as text.
var reasons = map[string]string{
	"None":                        "the scheduler has not looked at it yet",
	"Resources":                   "no node is free",
	"Priority":                    "jobs with a higher priority come first",
	"BeginTime":                   "it was preempted or its node failed, and starts again in a while",
	"PartitionDown":               "the partition is down",
	"PartitionTimeLimit":          "time is above the limit of the partition",
	"ReqNodeNotAvail":             "nodes that it needs are drained, down or reserved",
	"JobHeldUser":                 "it was held by its owner: scontrol release lets it go",
	"JobHeldAdmin":                "an administrator holds it",
	"AssocMaxJobsLimit":           "the account runs as many jobs as it may",
	"QOSMaxJobsPerUserLimit":      "the quality of service lets you run no more jobs",
	"InvalidAccount":              "the account is not valid",
	"InvalidQOS":                  "the quality of service is not valid",
	"AssocMaxSubmitJobLimit":      "the account has submitted as many jobs as it may",
	"QOSMaxSubmitJobPerUserLimit": "the quality of service lets you submit no more jobs",

	"AssocMaxWallDurationPerJobLimit": "time is above the limit of the account",
	"QOSMaxWallDurationPerJobLimit":   "time is above the limit of the quality of service",
}

// words says why a job waits.
func words(reason string) string {
	name, _, _ := strings.Cut(reason, ",") // ReqNodeNotAvail, UnavailableNodes:…
	if text := reasons[strings.TrimSpace(name)]; text != "" {
		return text + " (" + reason + ")"
	}
	return reason
}

// Here says in which job this process runs.
type Here struct {
	Pilot string // name for the pilot: never the same, also when a job starts again
	Job   string // as State says it
	// Scratch is the folder of the job on a disk of the node; empty: there is none.
	Scratch string
}

// InJob returns the job of this process; false if it is in none.
func InJob(env func(string) (string, bool)) (h Here, ok bool) {
	get := func(name string) string { v, _ := env(name); return v }
	id := get("SLURM_JOB_ID")
	if _, err := strconv.Atoi(id); err != nil {
		return h, false
	}
	restart := get("SLURM_RESTART_COUNT")
	if _, err := strconv.Atoi(restart); err != nil {
		restart = "0"
	}
	h = Here{Pilot: "slurm-" + id + "-" + restart, Job: id, Scratch: get("SLURM_TMPDIR")}
	if array, task := get("SLURM_ARRAY_JOB_ID"), get("SLURM_ARRAY_TASK_ID"); array != "" && task != "" {
		h.Job = array + "_" + task
	}
	return h, true
}
