package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/agents/scaffolds/bundler"
	"github.com/berth-eval/berth/cmd/berth/internal/bundles"
	"github.com/berth-eval/berth/cmd/berth/internal/drift"
	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/jobmemory"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/executors/slurm"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// pilotFlags are the user's choices for a pilot.
type pilotFlags struct {
	inFlight int
	scratch  string
	time     time.Duration
	trust    bool
	named    bool // --scratch was given, perhaps empty
}

func (a *app) pilotCommand() *cobra.Command {
	var ef experiment.Flags
	var f pilotFlags
	cmd := &cobra.Command{
		Use:   "pilot RUN",
		Short: "Run attempts of a run that is in progress, on this machine",
		Long: `Makes attempts of a run on this machine. The experiment of the run must have the
block executor "pilots" or "slurm", and this machine must see the folder of the
run, the tasks and the plugins under the same paths (docs/cluster.md).

A pilot ends when the run has ended, or when it got no attempt for the time of
idle in the executor block. On Ctrl-C or SIGTERM its attempts end as preempted
and are stored, and its exit code is 130.`,
		Example: "  berth pilot runs/sweep-20260101T120000Z --in-flight 4\n  ssh node7 'cd /shared/sweep && berth pilot last --in-flight 8 --time 4h'",
		Args:    cobra.ExactArgs(1),

		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.inFlight < 1 && cmd.Flags().Changed("in-flight"):
				return fmt.Errorf("--in-flight must be at least 1, got %d", f.inFlight)
			case f.time < 0:
				return errors.New("--time must not be negative")
			}
			f.named = cmd.Flags().Changed("scratch")
			return a.pilot(cmd.Context(), args[0], &ef, &f)
		},
	}
	ef.Register(cmd)
	fs := cmd.Flags()
	fs.IntVar(&f.inFlight, "in-flight", 0, "`NUMBER` of attempts at the same time (default: in_flight or cpus of the executor block, or the number of processors)")
	fs.StringVar(&f.scratch, "scratch", "", "keep attempts that are under way in `DIR`, on a disk of this machine (default: that of the executor block, or the first of $TMPDIR and /tmp that is not shared and has room)")
	fs.DurationVar(&f.time, "time", 0, "end within this `TIME`, and take no attempt that may take longer; 0: no limit")
	fs.BoolVar(&f.trust, "trust", false, "continue although other users own the run folder or can write to it")
	return cmd
}

// pilot is the pilot command.
func (a *app) pilot(ctx context.Context, name string, ef *experiment.Flags, f *pilotFlags) (err error) {
	// A scheduler repeats the signal before it kills; what a pilot needs after the
	// first one is time.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
	begin := time.Now()
	ef.Remote = true
	who := a.pilotPlace(f)
	defer func() { err = errors.Join(err, who.end(ctx)) }()
	if f.named { // plugins must know the place before they look at this machine
		if err = who.take(f.scratch); err != nil {
			if dir, none := report.FindRun(name); none == nil {
				a.decline(dir, err.Error())
			}
			return err
		}
	}
	dir, m, l, err := a.loadRun(ctx, name, ef, &resumeFlags{trust: f.trust})
	if err != nil {
		if dir != "" {
			a.decline(dir, err.Error())
		}
		return err
	}
	who.l = l
	if err = forPilots(dir, l); err != nil {
		return err
	}
	if err = a.startable(l); err != nil {
		if !l.Ready() { // what it says of a run does not help here
			a.decline(dir, l.Why())
			err = &exit{exitUsage, errors.New("this machine cannot make the attempts of the run: no attempt was taken")}
		}
		return err
	}
	if changes := drift.ChangedPlan(m, l.Plan.Manifest(m.Header)); len(changes) > 0 {
		a.tellChanges(changes)
		err = errors.New("the tasks or plugins that this machine sees make another plan than that of the run")
		a.decline(dir, err.Error())
		return &exit{exitUsage, err}
	}
	s, err := store.View(dir)
	if err != nil {
		return err
	}
	x := &l.Experiment.Executor
	err = who.ready(ctx, x.Scratch)
	if err == nil && x.CopyBundles {
		err = who.copyBundles(ctx)
	}
	if err != nil {
		a.decline(dir, err.Error())
		return err
	}
	f.inFlight = cmp.Or(f.inFlight, x.InFlight, x.CPUs, runtime.NumCPU())
	o := cluster.PilotOptions{Dir: s.Dir, Plan: l.Plan, Identity: who.identity}
	o.Identity.InFlight = f.inFlight
	if f.time > 0 {
		o.Until = begin.Add(max(f.time-x.Grace, f.time/2))
	}
	o.Say = func(text string) {
		a.Notef("%s pilot %s: %s\n", time.Now().Format(time.TimeOnly), o.Identity.Pilot, terminal.Clean(text))
	}
	p, err := cluster.NewPilot(o)
	if errors.Is(err, cluster.ErrOver) {
		return &exit{exitUsage, fmt.Errorf("%s needs no pilot: %w. Resume it with: berth resume %s", report.Display(dir), err, report.Display(dir))}
	}
	if err != nil {
		return err
	}
	if err = a.sameDigests(ctx, l, p.Settings().Digests); err != nil {
		return errors.Join(&exit{exitUsage, err}, p.Leave(err.Error()))
	}
	o.Say(fmt.Sprintf("works on %s, %s at a time", report.Display(dir), terminal.Count(f.inFlight, "attempt", "attempts")))
	err = a.workAs(ctx, l, s, p, &run.Worker{
		Worker: o.Identity.Worker, Scratch: who.scratch, Output: filepath.Join(s.Dir, filepath.FromSlash(cluster.LogDir), o.Identity.Pilot+".plugins.jsonl"),
	})
	if err == nil && ctx.Err() != nil { // a scheduler sees that there may be more to do
		err = &exit{exitInterrupted, nil}
	}
	return err
}

// forPilots fails if no pilot ever made attempts of the run, and its experiment wants
// none.
func forPilots(dir string, l *experiment.Loaded) error {
	_, absent := os.Stat(filepath.Join(dir, cluster.Dir))
	if l.Experiment == nil || l.Experiment.Executor.Kind != "local" || !errors.Is(absent, fs.ErrNotExist) {
		return nil
	}
	return &exit{exitUsage, fmt.Errorf("%[1]s needs no pilot: its experiment has no block executor \"pilots\" {}, so the process of berth run makes all attempts itself. "+
		"Add the block to the file of the experiment. Then start a new run, or continue with this one: berth resume %[1]s --experiment FILE", report.Display(dir))}
}

// decline says in the run why this machine makes no attempts: the user who started
// it sees that, and not what a job prints.
func (a *app) decline(dir, why string) {
	id := identity(1)
	if job, inJob := slurm.InJob(a.env); inJob {
		id.Pilot, id.Job = job.Pilot, job.Job
	}
	p, err := cluster.NewPilot(cluster.PilotOptions{Dir: dir, Plan: &plan.Plan{}, Identity: id})
	if err == nil {
		err = p.Leave(why)
	}
	if err != nil && !errors.Is(err, cluster.ErrOver) {
		a.Notef("the run does not hear of this: %v\n", err)
	}
}

// workAs prepares this machine and lets the pilot work.
func (a *app) workAs(ctx context.Context, l *experiment.Loaded, s *store.Run, p *cluster.Pilot, who *run.Worker) error {
	sandboxd, err := sandboxdPath()
	if err != nil {
		return errors.Join(err, p.Leave(err.Error()))
	}
	limits := l.Experiment.Limits
	limits.InFlight, limits.Budget = new(p.InFlight()), cell.Budget{}
	spec := run.Spec{
		Plan: l.Plan, Store: s, Host: l.Host, Formats: a.formats, Dialects: dialects.All, Berth: version, Sandboxd: sandboxd, Limits: limits,
		AcceptDrift: p.Settings().AcceptDrift, FindRun: report.FindRun, LookupEnv: a.env, Memory: jobmemory.Own(), Log: a.log,
		Worker: who,
	}
	up, err := p.Uplink() //nolint:contextcheck // secrets are read by what has no context
	if err != nil {
		return errors.Join(err, p.Leave(err.Error()))
	}
	if up != nil {
		defer up.Close()
		spec.Uplink, spec.Relayed = up, cluster.Relayed(&l.Experiment.Experiment)
	}
	worked := false
	err = run.Work(ctx, spec, func(n *run.Node) error {
		worked = true
		return p.Work(ctx, n)
	})
	if !worked && err != nil {
		err = errors.Join(err, p.Leave(err.Error()))
	}
	return err
}

// pilotPlace is who a pilot is, and where on this machine.
type pilotPlace struct {
	a        *app
	identity cluster.Identity
	job      slurm.Here
	scratch  string
	here     *scratchJob        // nil: it is not taken yet
	copies   *bundler.Copies    // nil: it copies no bundles
	l        *experiment.Loaded // nil: it is not loaded yet
}

func (a *app) pilotPlace(f *pilotFlags) *pilotPlace {
	w := &pilotPlace{a: a, identity: identity(f.inFlight)}
	if job, ok := slurm.InJob(a.env); ok {
		w.job, w.identity.Pilot, w.identity.Job = job, job.Pilot, job.Job
	}
	return w
}

// take takes the scratch folder that the user named; empty: the first that will do.
func (w *pilotPlace) take(named string) (err error) {
	if w.scratch, err = w.a.scratchFolder(named, w.job.Scratch); err == nil {
		w.here, err = w.a.beginJob(w.scratch, w.identity.Pilot)
	}
	return err
}

// ready takes the scratch folder of the experiment, unless another one is taken, and
// removes what dead jobs left in it.
func (w *pilotPlace) ready(ctx context.Context, named string) (err error) {
	if w.here == nil {
		if err = w.take(named); err != nil {
			return err
		}
		w.l.Host.Stop() // plugins of the next host know the place
		if w.l.Host, err = w.a.host(); err != nil {
			return err
		}
	}
	if left := w.a.vacate(ctx, []string{w.scratch}, w.environments()); left != nil {
		w.a.Notef("something of a dead job is left on this machine: %v\n", left)
	}
	return nil
}

// copyBundles copies the bundles that agents of the experiment use to the scratch
// folder, and makes plugins use the copies. The digests that are compared with the
// coordinator's are then those of the copies.
func (w *pilotPlace) copyBundles(ctx context.Context) error {
	used := usedBundles(w.l)
	if len(used) == 0 {
		return nil
	}
	var dir string
	var err error
	if w.copies, err = bundler.HoldCopies(ctx, bundles.CopiesIn(w.scratch)); err == nil {
		dir, err = w.a.bundles().Copy(ctx, w.copies, used)
	}
	if err != nil {
		return fmt.Errorf("copy_bundles: %w", err)
	}
	if dir == "" {
		return nil
	}
	w.a.forJob = append(w.a.forJob, bundle.EnvDir+"="+dir)
	env := w.a.env
	w.a.env = func(name string) (string, bool) {
		if name == bundle.EnvDir {
			return dir, true
		}
		return env(name)
	}
	w.l.Plan.Checker = &feasible.Checker{} // it remembers where bundles were
	w.l.Host.Stop()                        // plugins of the next host look there
	w.l.Host, err = w.a.host()
	return err
}

// usedBundles returns the bundles that agents of an experiment use.
func usedBundles(l *experiment.Loaded) (used []agent.Bundle) {
	for i := range l.Experiment.Cells {
		if n := l.Plan.Needs(i).Agent; n != nil {
			used = append(used, n.Bundles...)
		}
	}
	return used
}

// environments returns the plugins that make sandboxes here.
func (w *pilotPlace) environments() []string {
	if w.l == nil || w.l.Experiment == nil {
		return nil
	}
	return run.Environments(&w.l.Experiment.Experiment)
}

// end stops the plugins and removes what they kept here.
func (w *pilotPlace) end(ctx context.Context) error {
	names := w.environments()
	if w.l != nil {
		w.l.Close()
	}
	var err error
	if w.copies != nil {
		err = w.copies.Close()
	}
	if w.here != nil {
		err = errors.Join(err, w.here.end(ctx, names))
	}
	return err
}

// identity names a pilot that a user started.
func identity(workers int) cluster.Identity {
	self := node.Self()
	host, _, _ := strings.Cut(self.Host, ".")
	name := fmt.Sprintf("%s-%d-%s", store.Name(host, 60), self.PID, strings.ToLower(rand.Text()[:6]))
	return cluster.Identity{Worker: record.Worker{Pilot: name, Node: self.Host}, Process: self, InFlight: workers, Berth: version}
}

// leastScratchMiB is the room that a folder for attempts must have to be chosen.
const leastScratchMiB = 256

// scratchFolder returns a folder of this user for attempts that are under way,
// below the one that the user named, or below the first that is on a disk of this
// machine and has room. ofJob is that of the job of this process, if it is in one.
func (a *app) scratchFolder(named, ofJob string) (string, error) {
	parents := []string{named}
	if named == "" {
		tmp, _ := a.env("TMPDIR")
		parents = slices.DeleteFunc([]string{ofJob, tmp, "/tmp"}, func(s string) bool { return s == "" })
	}
	var why error
	for _, parent := range parents {
		err := runtimedir.Local(parent)
		if free, known := runtimedir.Free(parent); err == nil && known && free < leastScratchMiB<<20 && named == "" {
			err = fmt.Errorf("%s has %d MiB left", parent, free>>20)
		}
		dir := ""
		if err == nil {
			dir, err = runtimedir.For(os.Getuid()).Own(parent)
		}
		if err == nil {
			return dir, nil
		}
		why = errors.Join(why, err)
	}
	return "", fmt.Errorf("attempts that are under way need a folder on a disk of this machine: %w: name another one with --scratch, or with scratch in the executor block", why)
}

// scratchFolders returns the folders of this user in which pilots may have left
// something: below the default ones, and below named if it is not empty.
func (a *app) scratchFolders(named string) (dirs []string) {
	tmp, _ := a.env("TMPDIR")
	for _, parent := range []string{named, tmp, "/tmp"} {
		dir := filepath.Join(parent, "berth-"+strconv.Itoa(os.Getuid()))
		if parent != "" && !slices.Contains(dirs, dir) && runtimedir.Ours(dir) == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// digests returns the digests of everything that decides what attempts are made
// with, for pilots to compare.
func (a *app) digests(ctx context.Context, l *experiment.Loaded) (map[string]string, error) {
	used, err := l.Plugins(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, p := range used {
		all[p.Kind+" "+p.Name] = p.Digest
	}
	bundles, err := a.bundles().Digests()
	if err != nil {
		return nil, err
	}
	maps.Copy(all, bundles)
	exe, err := os.Executable()
	if err == nil {
		all["berth"], err = store.SumOf(exe)
	}
	if sandboxd, missing := sandboxdPath(); err == nil && missing == nil {
		all[sandboxdName], err = store.SumOf(sandboxd)
	}
	return all, err
}

// sameDigests fails if a program on this machine differs from that of the
// coordinator.
func (a *app) sameDigests(ctx context.Context, l *experiment.Loaded, want map[string]string) error {
	here, err := a.digests(ctx, l)
	if err != nil {
		return err
	}
	var differ []string
	for _, what := range slices.Sorted(maps.Keys(want)) {
		switch now, there := here[what]; {
		case !there && strings.HasPrefix(what, "bundle "): // perhaps it is not needed
		case !there:
			differ = append(differ, what+" is missing here")
		case now != want[what]:
			differ = append(differ, fmt.Sprintf("%s is %s here and %s where the run was started", what, run.ShortDigest(now), run.ShortDigest(want[what])))
		}
	}
	if len(differ) > 0 {
		return fmt.Errorf("this machine would make other attempts than the run: %s. Use the same installation on all machines", strings.Join(differ, "; "))
	}
	return nil
}
