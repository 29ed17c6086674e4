package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Scheduler starts pilots as jobs of a cluster. Its methods are not called
// concurrently.
type Scheduler interface {
	// Submit submits n pilots or fewer, and returns the names of their jobs as State
	// and the pilots say them. What a job prints is in LogDir, in <job>.out. Fails
	// with ErrLater in the chain if a limit is reached that passes.
	Submit(ctx context.Context, n int) (jobs []string, err error)
	// State returns the jobs of this run that have not ended, also those of an
	// earlier coordinator.
	State(ctx context.Context) ([]JobState, error)
	// Cancel ends the jobs of this run; with waiting only those that have not begun.
	Cancel(ctx context.Context, waiting bool) error
}

// ErrLater means that a scheduler takes no jobs for the moment.
var ErrLater = errors.New("the scheduler takes no jobs for the moment")

// JobState is the state of a job.
type JobState struct {
	Job   string
	Waits string // why it waits, as a sentence; empty: it runs
}

// Fleet says how many pilots a scheduler keeps alive.
type Fleet struct {
	Scheduler Scheduler
	Workers   int // pilots at a time
	InFlight  int // attempts of a pilot at a time
}

// Bounds of what the scheduler is asked: a site may allow four requests a minute for
// a longer time.
const (
	askEvery    = 30 * time.Second // between two questions for the state
	perMinute   = 10               // submissions
	oneCommand  = time.Minute      // the longest time of a command
	failedLimit = 3                // submissions in a row of which no pilot took an attempt, before the run stops
)

// keeper keeps pilots alive while there is work.
type keeper struct {
	f Fleet
	c *Coordinator

	mu   sync.Mutex
	todo int // attempts and trials that are not done

	jobs   map[string]jobPhase // jobs that have not ended, as far as is known
	times  []time.Time         // of submissions in the last minute
	asked  time.Time
	failed int    // submissions in a row of which no pilot took an attempt
	why    string // the last such pilot ended

	most    int       // pilots in the next submission, because more were refused; 0: any number
	after   time.Time // no submission before
	refused string    // why the last submission was refused; empty: it was not
	waits   string    // why jobs wait
	said    string
}

// jobPhase is what is known of a job.
type jobPhase int

const (
	submitted jobPhase = iota // no pilot of it has begun
	working                   // its pilot lives
	left                      // its pilot has ended: so has the job, or it starts again
	silent                    // its pilot is lost: the job may hold its node without it
)

// newKeeper asks for the jobs of an earlier coordinator, and submits the first
// pilots. Its error has the scheduler's own words.
func newKeeper(ctx context.Context, f Fleet, c *Coordinator, todo int) (*keeper, error) {
	k := &keeper{f: f, c: c, todo: todo, jobs: map[string]jobPhase{}}
	if err := k.ask(ctx); err != nil {
		return nil, err
	}
	if err := k.submit(ctx); err != nil && !errors.Is(err, ErrLater) {
		return nil, err
	}
	return k, nil
}

// heard takes in how much is left to do.
func (k *keeper) heard(e run.Event) {
	if e.Kind == run.Live || e.Kind == run.Notice {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.todo = e.Running + e.Left
	if e.Kind == run.Stopping && e.Trial == nil {
		k.todo = e.Running // nothing more begins
	}
}

// keep works until ctx ends. fail stops the run.
func (k *keeper) keep(ctx context.Context, fail func(error)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if k.match() && !k.uncertain() {
			k.waits = ""
		}
		var err error
		if k.uncertain() && time.Since(k.asked) >= askEvery {
			if err = k.ask(ctx); err != nil {
				k.waits = err.Error()
			}
		}
		if err == nil {
			_ = k.submit(ctx) //nolint:errcheck // it is said, and tried again
		}
		switch {
		case k.failed >= failedLimit:
			fail(run.Stop{Why: fmt.Sprintf("pilots were submitted %d times in a row, and none took an attempt%s. What they said is in %s", k.failed, k.why, LogDir)})
			return
		case ctx.Err() == nil:
			k.say()
		}
	}
}

// match finds the pilots of jobs, in the journals of pilots. It reports whether one
// has begun.
func (k *keeper) match() (began bool) {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	for _, p := range k.c.pilots {
		if p.identity == nil || p.identity.Job == "" {
			continue
		}
		phase, counted := k.jobs[p.identity.Job]
		gone := p.ended || p.lost
		if p.took && !p.told {
			k.failed = 0
		}
		switch {
		case counted && phase != working && !gone:
			k.jobs[p.identity.Job], began = working, true
		case counted && p.ended && !p.told && !p.took: // as if it had not begun
			k.jobs[p.identity.Job], k.why = submitted, ": "+strings.TrimSuffix(p.why, ".")
		case counted && p.ended && !p.told:
			k.jobs[p.identity.Job] = left
		case counted && gone && !p.told:
			k.jobs[p.identity.Job] = silent
		}
		p.told = gone
	}
	return began
}

// uncertain reports whether a job may have ended without a pilot that says so.
func (k *keeper) uncertain() bool {
	for _, phase := range k.jobs {
		if phase != working {
			return true
		}
	}
	return false
}

// ask asks the scheduler for the state of all jobs.
func (k *keeper) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, oneCommand)
	defer cancel()
	k.asked = time.Now()
	states, err := k.f.Scheduler.State(ctx)
	if err != nil {
		return err
	}
	there, why := map[string]bool{}, map[string]int{}
	for _, s := range states {
		there[s.Job] = true
		if _, counted := k.jobs[s.Job]; !counted || s.Waits != "" {
			k.jobs[s.Job] = submitted // of an earlier coordinator, or it starts again
		}
		if s.Waits != "" {
			why[s.Waits]++
		}
	}
	lost := 0
	for job, phase := range k.jobs {
		if !there[job] {
			delete(k.jobs, job)
			if phase == submitted {
				if lost++; lost == 1 { // one is enough to see the reason
					k.why = cmp.Or(k.c.printed(job), k.why)
				}
			}
		}
	}
	if lost > 0 && len(k.jobs) == 0 {
		k.failed++
	}
	var texts []string
	if lost > 0 {
		texts = append(texts, fmt.Sprintf("jobs that ended before their pilot took an attempt: %d%s", lost, k.why))
	}
	for text, n := range why {
		texts = append(texts, fmt.Sprintf("waiting jobs: %d: %s", n, text))
	}
	slices.Sort(texts)
	k.waits = strings.Join(texts, "; ")
	return nil
}

// printed is the last line that a job printed, for people; empty: none is known.
func (c *Coordinator) printed(job string) string {
	b, err := untrusted.Read(filepath.Join(c.root, path.Base(LogDir)), job+".out", maxPrinted)
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	last := []rune(strings.ToValidUTF8(all[len(all)-1], "?"))
	if err != nil || len(last) == 0 {
		return ""
	}
	return fmt.Sprintf(": job %s printed %q", job, string(last[:min(len(last), 300)]))
}

// maxPrinted bounds what is read of what a job printed, in bytes.
const maxPrinted = 1 << 20

// say tells the user once why pilots are missing.
func (k *keeper) say() {
	text := strings.Trim(k.waits+"; "+k.refused, "; ")
	if text == k.said {
		return
	}
	k.c.mu.Lock()
	k.c.tell(Line{Kind: Waiting, Why: text})
	k.c.mu.Unlock()
	if k.said = text; text != "" {
		k.c.o.Say(text)
	}
}

// submit submits as many pilots as are missing. A limit may allow fewer: of more than
// one that are refused for a while, half are tried next. One that is refused is tried
// again later.
func (k *keeper) submit(ctx context.Context) error {
	k.mu.Lock()
	want := min(k.f.Workers, (k.todo+k.f.InFlight-1)/k.f.InFlight)
	k.mu.Unlock()
	n := want - len(k.jobs)
	now := time.Now()
	for len(k.times) > 0 && now.Sub(k.times[0]) >= time.Minute {
		k.times = k.times[1:]
	}
	if n <= 0 {
		k.refused, k.most = "", 0
		return nil
	}
	if len(k.times) >= perMinute || k.failed > 0 && len(k.times) > 0 || now.Before(k.after) {
		return nil
	}
	if k.most > 0 {
		n = min(n, k.most)
	}
	k.times = append(k.times, now)
	ctx, cancel := context.WithTimeout(ctx, oneCommand)
	defer cancel()
	jobs, err := k.f.Scheduler.Submit(ctx, n)
	switch k.refused = ""; {
	case err == nil:
		k.most *= 2
	case errors.Is(err, ErrLater) && n > 1:
		k.most = n / 2
	default:
		k.refused, k.after = err.Error(), now.Add(askEvery)
	}
	for _, job := range jobs {
		k.jobs[job] = submitted
	}
	if len(jobs) > 0 {
		k.asked = now // they are not known everywhere yet
		k.c.o.Say(fmt.Sprintf("submitted %d pilots: %s", len(jobs), strings.Join(jobs[:min(len(jobs), 3)], ", ")))
	}
	return err
}

// end cancels jobs that have not begun, and all if a pilot is lost: others end by
// themselves.
func (k *keeper) end(ctx context.Context) error {
	k.match()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), oneCommand)
	defer cancel()
	count := map[jobPhase]int{}
	for _, phase := range k.jobs {
		count[phase]++
	}
	if count[submitted]+count[silent] == 0 {
		return nil
	}
	return k.f.Scheduler.Cancel(ctx, count[silent] == 0)
}
