package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/run/cluster"
)

// Scheduler submits one job and returns its result.
type Scheduler interface {
	// Try submits a job that runs berth with these arguments. What it prints goes to
	// a file.
	Try(ctx context.Context, file string, args ...string) (job string, err error)
	// State returns the job while it waits or works.
	State(ctx context.Context) ([]cluster.JobState, error)
}

// Check is one job that looks at a node.
type Check struct {
	Dir       string // a new folder that both ends see, of this user alone
	Scheduler Scheduler
	Args      []string // of berth, for the job
	Request   Request  // without Relay
	Relay     string   // address for the relay, as --relay-address
	Wait      time.Duration
	// Late is how long to wait for files of a job that has ended.
	Late time.Duration
	// Every is how often the scheduler is asked for the job.
	Every time.Duration
	Say   func(text string)
}

// Seen is what one check found. Without a report, Failed says why there is none.
type Seen struct {
	Job    string
	Folder string        // file system of the shared folder, here
	Start  time.Duration // from the submission until something of the job was seen; 0: nothing was
	Report *Report
	Failed string

	Links, Creates Claims
	ScratchShared  bool
}

// Run submits the job and follows it. Fails if the scheduler refuses, and if ctx ends.
func (c *Check) Run(ctx context.Context) (*Seen, error) {
	for _, d := range []string{here, there, claims} {
		if err := os.Mkdir(filepath.Join(c.Dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	relay, err := listen(ctx, c.Relay)
	if err != nil {
		return nil, err
	}
	defer relay.Close()
	c.Request.Relay = relay.Place()
	if err = publish(c.Dir, requestFile, c.Request); err != nil {
		return nil, err
	}
	s := &Seen{Folder: fileSystem(c.Dir)}
	if s.Job, err = c.Scheduler.Try(ctx, Out(c.Dir), c.Args...); err != nil {
		return nil, err
	}
	c.Say("submitted job " + s.Job)
	return s, c.follow(ctx, s)
}

// follow answers the node until its report is there or the job is gone.
func (c *Check) follow(ctx context.Context, s *Seen) error {
	f := &follower{Check: c, seen: s, done: map[string]bool{}, begin: time.Now()}
	f.ask = f.begin.Add(min(c.Every, 5*time.Second))
	for s.Report == nil && s.Failed == "" {
		if err := errors.Join(f.answer(), f.watch(ctx)); err != nil {
			return err
		}
		if err := pause(ctx, tick); err != nil {
			return err
		}
	}
	return nil
}

type follower struct {
	*Check
	seen  *Seen
	done  map[string]bool // names of the node's files that were answered
	begin time.Time       // the submission
	heard time.Time       // something of the node was seen
	ask   time.Time       // the scheduler is asked then
	gone  time.Time       // the scheduler does not know the job any more; zero: it does
	waits string
	line  int
}

// answer answers what is new of the node.
func (f *follower) answer() error {
	own, other := filepath.Join(f.Dir, here), filepath.Join(f.Dir, there)
	entries, err := os.ReadDir(other)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if f.done[name] || name == linesFile {
			continue
		}
		f.done[name], f.heard = true, time.Now()
		if err = f.one(name, own, other); err != nil {
			return err
		}
	}
	if n, _ := said(other); n > f.line {
		f.line, f.heard = n, time.Now()
		return say(own, n)
	}
	return nil
}

// one answers one file of the node.
func (f *follower) one(name, own, other string) error {
	switch {
	case name == beganFile:
		f.seen.Start = time.Since(f.begin)
		f.Say(fmt.Sprintf("job %s started after %s", f.seen.Job, f.seen.Start.Round(100*time.Millisecond)))
	case strings.HasPrefix(name, ping):
		return publish(own, name, time.Now())
	case name == marker:
		var file string
		if err := read(filepath.Join(other, name), &file); err != nil {
			return err
		}
		if file != "" {
			_, err := os.Stat(file)
			f.seen.ScratchShared = err == nil
		}
	case name == claim:
		if err := publish(own, name, nil); err != nil {
			return err
		}
		f.seen.Links, f.seen.Creates = claimAll(f.Dir, here, false)
	case name == reportFile:
		r := &Report{}
		if err := read(filepath.Join(other, name), r); err != nil {
			return err
		}
		f.seen.Report = r
	}
	return nil
}

// watch asks the scheduler at times, and decides when nothing more will come.
func (f *follower) watch(ctx context.Context) error {
	now := time.Now()
	switch {
	case f.seen.Report != nil:
		return nil
	case !f.gone.IsZero() && now.Sub(later(f.gone, f.heard)) > f.Late:
		f.seen.Failed = "the job has ended, and left no report"
		return nil
	case f.seen.Start == 0 && now.Sub(f.begin) > f.Wait:
		f.seen.Failed = fmt.Sprintf("the job did not start within %s", f.Wait)
		if f.waits != "" {
			f.seen.Failed += ": " + f.waits
		}
		return nil
	case f.seen.Start > 0 && now.Sub(f.heard) > working:
		f.seen.Failed = fmt.Sprintf("the job started, but nothing came from it for %s", working)
		return nil
	case now.Before(f.ask) || !f.gone.IsZero():
		return nil
	}
	f.ask = now.Add(f.Every)
	states, err := f.Scheduler.State(ctx)
	if err != nil {
		f.Say(err.Error()) // the folder decides
		return nil
	}
	if len(states) == 0 {
		f.gone = now
		return nil
	}
	if waits := states[0].Waits; waits != f.waits {
		f.waits = waits
		if waits != "" {
			f.Say(fmt.Sprintf("job %s waits: %s", f.seen.Job, waits))
		}
	}
	return nil
}

// working is how long a node may be silent: it asks every environment plugin.
const working = 5 * time.Minute

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
