package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

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
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	me, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("executor \"slurm\": %w", err)
	}
	home, _ := a.env("HOME")
	f := &cluster.Fleet{Workers: max(1, x.Workers), InFlight: cmp.Or(x.InFlight, x.CPUs, 1)}
	f.Scheduler, err = slurm.New(slurm.Job{
		ID: j.store.Manifest.Header.Run, Run: j.store.Dir, Berth: exe, Dir: filepath.Dir(j.store.Dir), Home: cmp.Or(home, me.HomeDir), User: me.Username,
		Args: []string{"--workers", strconv.Itoa(f.InFlight)}, Setup: x.Setup, Grace: x.Grace, Time: x.Time, CPUs: x.CPUs, Memory: x.MemoryMiB, GPUs: x.GPUs,
		Partition: x.Partition, Account: x.Account, QOS: x.QOS, Options: x.Options,
	})
	return f, err
}

// cancelOnSecond makes a second Ctrl-C cancel the jobs of a run before it ends this
// process. The first one lets pilots end by themselves.
func (a *app) cancelOnSecond(ctx context.Context, s cluster.Scheduler) (undo func()) {
	got := make(chan os.Signal, 2)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM)
	over := make(chan struct{})
	go func() {
		for n := 0; n < 2; n++ {
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
