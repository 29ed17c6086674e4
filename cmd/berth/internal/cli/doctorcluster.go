package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/drift"
	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/nodecheck"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/executors/slurm"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// clusterFlags are the user's choices for looking at a node.
type clusterFlags struct {
	experiment experiment.Flags
	runs       string
	relay      string
	node       string
}

func (f *clusterFlags) register(cmd *cobra.Command) {
	f.experiment.Register(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.runs, "runs", report.RunsDir, "look at a folder in `DIR`, where runs of the experiment are")
	fs.StringVar(&f.relay, "relay-address", "", "let the node look for the relay at this `ADDRESS` of this machine, HOST or HOST:PORT, as with berth run")
	fs.StringVar(&f.node, "node", "", "be the end on the node, with the shared folder `DIR`")
	_ = fs.MarkHidden("node")
}

// jobTime is the time limit of the job.
const jobTime = 10 * time.Minute

// asked is how often the scheduler is asked for the job. Sites allow a few questions
// a minute.
const asked = 15 * time.Second

// doctorCluster submits one job for an experiment, and says what both ends see.
func (a *app) doctorCluster(ctx context.Context, path string, f *clusterFlags) (err error) {
	l, err := a.load(ctx, path, &f.experiment)
	if err != nil {
		return err
	}
	defer l.Close()
	if l.Experiment == nil || l.Plan == nil {
		return errors.Join(&exit{exitUsage, nil}, l.Complain(a.Printer))
	}
	x := l.Experiment.Executor
	if x.Kind != "slurm" {
		return &exit{exitUsage, fmt.Errorf("%s has no executor \"slurm\" block, so there is no job to submit: run berth doctor without a file on each machine", report.Display(path))}
	}
	if err = slurm.There(); err != nil {
		return &exit{exitUsage, err}
	}
	request, err := a.nodeRequest(ctx, l)
	if err != nil {
		return err
	}
	dir, undo, err := checkFolder(f.runs)
	if err != nil {
		return fmt.Errorf("make a folder for the check: %w: choose another folder with --runs", err)
	}
	defer undo()
	limit := jobTime
	if x.Time > 0 {
		limit = min(limit, x.Time)
	}
	x.Time, x.Grace = limit, min(x.Grace, 10*time.Second)
	o, err := a.slurmJob(&x, "doctor-"+strings.ToLower(rand.Text()[:8]), dir)
	if err != nil {
		return err
	}
	s, err := slurm.New(o)
	if err != nil {
		return err
	}
	check := nodecheck.Check{
		Dir: dir, Scheduler: s, Args: []string{"doctor", "--node", dir}, Request: *request, Relay: f.relay, Wait: 10 * time.Minute, Late: cmp.Or(x.LostAfter, time.Minute), Every: asked,
		Say: func(text string) { a.Notef("%s\n", terminal.Clean(text)) },
	}
	seen, err := check.Run(ctx)
	if err != nil || seen.Report == nil {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		if seen != nil { // otherwise nothing was submitted
			err = errors.Join(err, s.Cancel(limited, false))
		}
	}
	if err != nil {
		return err
	}
	printed, _ := untrusted.Read(dir, filepath.Base(nodecheck.Out(dir)), 1<<20) //nolint:errcheck // it may have printed nothing
	return a.tellCluster(seen, printed, request.Host, needs(l))
}

// tellCluster prints what was found.
func (a *app) tellCluster(seen *nodecheck.Seen, printed []byte, host string, want *nodecheck.Needs) error {
	res := seen.Findings(host, want, printed)
	done, err := a.Answer(res)
	if err != nil {
		return err
	}
	if !done {
		a.sayChecks(res.Checks, res.Environments)
		if res.Ready {
			a.Printf("\nThe experiment can run on %s.\nNo sandbox was started to find out.\n", terminal.Clean(res.Node))
		} else {
			a.Printf("\nThe experiment cannot run on this cluster yet; see the lines above.\n")
		}
	}
	if !res.Ready {
		return &exit{exitErrors, nil}
	}
	return nil
}

// nodeRequest is what a node must have for an experiment.
func (a *app) nodeRequest(ctx context.Context, l *experiment.Loaded) (*nodecheck.Request, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	q := &nodecheck.Request{Host: host, UID: os.Getuid(), Scratch: l.Experiment.Executor.Scratch, Files: map[string]string{}, Folders: []string{}}
	used, err := l.Plugins(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := l.Host.List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		e := &entries[i]
		in := slices.ContainsFunc(used, func(p drift.LockedPlugin) bool { return p.Kind == string(e.Kind) && p.Name == e.Name })
		if !in || e.ShadowedBy != "" || e.Error != "" || !filepath.IsAbs(e.Path) {
			continue
		}
		if q.Files[e.Path], err = digestOfFile(e.Path); err != nil {
			return nil, err
		}
	}
	exe, err := os.Executable()
	if err == nil {
		q.Files[exe], err = digestOfFile(exe)
	}
	if sandboxd, missing := sandboxdPath(); err == nil && missing == nil {
		q.Files[sandboxd], err = digestOfFile(sandboxd)
	}
	for _, c := range l.Experiment.Cells {
		for i := range c.Datasets {
			if dir := c.Datasets[i].Path; dir != "" && !slices.Contains(q.Folders, dir) {
				q.Folders = append(q.Folders, dir)
			}
		}
	}
	return q, err
}

// needs is what an experiment wants of its nodes.
func needs(l *experiment.Loaded) *nodecheck.Needs {
	n, relayed := &nodecheck.Needs{}, cluster.Relayed(&l.Experiment.Experiment)
	for _, c := range l.Experiment.Cells {
		if p := c.Environment.Plugin; !slices.Contains(n.Environments, p) {
			n.Environments = append(n.Environments, p)
		}
	}
	for _, used := range run.Models(l.Experiment.Cells...) {
		n.Relayed = n.Relayed || slices.ContainsFunc(used.Chain(), relayed)
	}
	return n
}

// checkFolder makes a folder of this user alone below the folder of runs, and removes
// it with undo.
func checkFolder(runs string) (dir string, undo func(), err error) {
	runs, err = filepath.Abs(runs)
	if err != nil {
		return "", nil, err
	}
	_, absent := os.Stat(runs)
	if err = os.MkdirAll(runs, 0o755); err != nil {
		return "", nil, err
	}
	if dir, err = os.MkdirTemp(runs, ".doctor-"); err != nil {
		return "", nil, err
	}
	return dir, func() {
		_ = os.RemoveAll(dir)
		if absent != nil {
			_ = os.Remove(runs) // unless a run was made in it
		}
	}, nil
}

// doctorNode is the end on the node.
func (a *app) doctorNode(ctx context.Context, dir string) error {
	job, _ := slurm.InJob(a.env)
	var here *scratchJob
	n := nodecheck.Node{
		Dir: dir, Digest: digestOfFile, Doctor: a.doctor,
		Scratch: func(named string) (scratch string, err error) {
			if scratch, err = a.scratchFolder(named, job.Scratch); err == nil {
				here, err = a.beginJob(scratch, "doctor-"+strings.ToLower(rand.Text()[:8])) // environments look as those of a pilot do
			}
			return scratch, err
		},
	}
	err := n.Work(ctx)
	if here == nil {
		return err
	}
	err = errors.Join(err, here.end(ctx, nil))
	h, failed := a.host()
	if failed != nil {
		return errors.Join(err, failed)
	}
	defer h.Stop()
	return errors.Join(err, a.vacateAll(ctx, h, []string{here.scratch}, false))
}
