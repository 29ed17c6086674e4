package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-eval/berth/core/gateway/uplink"
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
	Start  time.Duration // from the submission until something of the job was seen; 0: nothing was
	Report *Report
	Failed string

	ScratchShared bool
}

// working is how long a job may take from its first file to its report: it asks every
// environment plugin.
const working = 8 * time.Minute

// Run submits the job and follows it. Fails if the scheduler refuses, and if ctx ends.
func (c *Check) Run(ctx context.Context) (*Seen, error) {
	// A relay as a run has it, at the same address. It answers no request.
	relay, err := uplink.Listen(ctx, uplink.Options{
		Address: c.Relay, Token: func(context.Context, string) (string, error) { return "", errors.New("no run is under way") },
	})
	if err != nil {
		return nil, err
	}
	defer relay.Close()
	c.Request.Relay = relay.Place()
	if err = os.WriteFile(filepath.Join(c.Dir, takenFile), nil, 0o600); err != nil {
		return nil, err
	}
	if err = publish(c.Dir, requestFile, c.Request); err != nil {
		return nil, err
	}
	s := &Seen{}
	if s.Job, err = c.Scheduler.Try(ctx, Out(c.Dir), c.Args...); err != nil {
		return nil, err
	}
	c.Say("submitted job " + s.Job)
	return s, c.follow(ctx, s)
}

// follow answers the node, and waits for its report or the end of the job.
func (c *Check) follow(ctx context.Context, s *Seen) error {
	begin := time.Now()
	ask := begin.Add(min(c.Every, 5*time.Second)) // the scheduler is asked then
	var gone time.Time                            // the scheduler does not know the job any more; zero: it does
	waits := ""
	for {
		now := time.Now()
		switch {
		case s.Start == 0 && listed(c.Dir, beganFile):
			if err := c.answer(s, time.Since(begin)); err != nil {
				return err
			}
		case s.Start > 0 && listed(c.Dir, reportFile):
			s.Report = &Report{}
			return read(c.Dir, reportFile, s.Report)
		case !gone.IsZero() && now.Sub(gone) > c.Late:
			s.Failed = "the job has ended, and left no report"
			return nil
		case s.Start == 0 && now.Sub(begin) > c.Wait:
			s.Failed = fmt.Sprintf("the job did not start within %s", c.Wait)
			if waits != "" {
				s.Failed += ": " + waits
			}
			return nil
		case s.Start > 0 && now.Sub(begin)-s.Start > working:
			s.Failed = fmt.Sprintf("the job started, but nothing came from it for %s", working)
			return nil
		case now.After(ask) && gone.IsZero():
			ask = now.Add(c.Every)
			states, err := c.Scheduler.State(ctx)
			switch {
			case err != nil:
				c.Say(err.Error()) // the folder decides
			case len(states) == 0:
				gone = now
			case states[0].Waits != waits:
				if waits = states[0].Waits; waits != "" {
					c.Say(fmt.Sprintf("job %s waits: %s", s.Job, waits))
				}
			}
		}
		if err := pause(ctx, tick); err != nil {
			return err
		}
	}
}

// answer answers the first file of the node.
func (c *Check) answer(s *Seen, after time.Duration) error {
	s.Start = after
	c.Say(fmt.Sprintf("job %s started after %s", s.Job, after.Round(100*time.Millisecond)))
	var began Report
	if err := read(c.Dir, beganFile, &began); err != nil {
		return err
	}
	if began.Scratch.Marker != "" {
		_, err := os.Stat(began.Scratch.Marker)
		s.ScratchShared = err == nil
	}
	return publish(c.Dir, answerFile, nil)
}
