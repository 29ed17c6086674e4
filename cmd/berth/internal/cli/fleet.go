package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/control"
	loaded "github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/executors/slurm"
)

// fleet returns the pilots that a scheduler keeps alive for a run; nil if the user
// starts them.
func (a *app) fleet(j *job) (*cluster.Fleet, error) {
	x := &j.Experiment.Executor
	if x.Kind != "slurm" {
		return nil, nil
	}
	s, err := a.slurm(j)
	return &cluster.Fleet{Scheduler: s, Workers: max(1, x.Workers), InFlight: slurmInFlight(x)}, err
}

// schedulerThere fails if an experiment needs a scheduler that this machine does not
// have. Nodes need not have it.
func schedulerThere(l *loaded.Loaded) error {
	if l.Experiment.Executor.Kind == "slurm" {
		return slurm.There()
	}
	return nil
}

// slurmInFlight is how many attempts a pilot makes at a time.
func slurmInFlight(x *experiment.Executor) int { return cmp.Or(x.InFlight, x.CPUs, 1) }

// slurm returns the scheduler for a run.
func (a *app) slurm(j *job) (*slurm.Slurm, error) {
	o, err := a.slurmJob(&j.Experiment.Executor, j.store.Manifest.Header.Run, j.store.Dir)
	if err != nil {
		return nil, err
	}
	return slurm.New(o)
}

// slurmJob is what jobs for a run in dir are submitted with.
func (a *app) slurmJob(x *experiment.Executor, id, dir string) (o slurm.Job, err error) {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return o, fmt.Errorf("find this program: %w", err)
	}
	home, ok := a.env("HOME")
	if me, err := user.Current(); !ok && err == nil {
		home = me.HomeDir
	}
	return slurm.Job{
		ID: id, Run: dir, Berth: exe, Dir: filepath.Dir(dir), Home: home, User: control.NameOf(os.Getuid()),
		Args: []string{"--in-flight", strconv.Itoa(slurmInFlight(x)), "--scratch", x.Scratch}, Setup: x.Setup, Grace: x.Grace, Time: x.Time, CPUs: x.CPUs, Memory: x.MemoryMiB,
		Partition: x.Partition, Account: x.Account, QOS: x.QOS, Options: x.Options,
	}, nil
}

// detach lets a job of the cluster continue with a run, as its coordinator. It closes
// the store.
func (a *app) detach(ctx context.Context, j *job) error {
	s, err := a.slurm(j)
	if err = errors.Join(err, j.store.Close()); err != nil {
		return err
	}
	args := []string{"resume", j.store.Dir}
	if j.flags.inFlight > 0 {
		args = append(args, "--in-flight", j.flags.inFlight.String())
	}
	if j.flags.metrics != "" {
		args = append(args, "--metrics", j.flags.metrics)
	}
	for _, r := range j.flags.require {
		args = append(args, "--require", r)
	}
	id, err := s.Detach(ctx, args...)
	if err != nil {
		return &exit{exitIncomplete, fmt.Errorf("%w\nresume with: berth resume %s", err, report.Display(j.store.Dir))}
	}
	return a.say(output.Detached{Dir: j.store.Dir, Job: id}, func() {
		a.Printf("job %[1]s runs the coordinator of %[2]s\nwhether it waits, and why: squeue --jobs=%[1]s\nshow it: berth show %[2]s\n", id, report.Display(j.store.Dir))
	})
}

// cancelOnSecond makes a second Ctrl-C cancel the jobs of a run before it ends this
// process. The first one lets pilots end by themselves.
func (a *app) cancelOnSecond(ctx context.Context, s cluster.Scheduler) (undo func()) {
	got := make(chan os.Signal, 2)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM)
	over := make(chan struct{})
	go func() {
		for range 2 {
			select {
			case <-got:
			case <-over:
				return
			}
		}
		a.Notef("cancelling the jobs of the run\n")
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		if err := s.Cancel(limited, false); err != nil {
			a.Notef("%v\n", err)
		}
		signal.Reset(syscall.SIGINT)
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT) // as a second Ctrl-C ends any other run
	}()
	return func() {
		signal.Stop(got)
		close(over)
	}
}
