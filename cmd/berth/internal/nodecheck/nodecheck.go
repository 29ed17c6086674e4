// Package nodecheck finds out whether a node of a cluster can make the attempts of an
// experiment: one job looks at what the node has, and reports it in a folder that the
// node and the machine that submits both see.
//
//	request.json   what the node is to look at
//	report.json    what the node found
//	job.out        what the job prints
//
// It must not know a scheduler.
package nodecheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/gateway/uplink"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/plugins/runtimedir"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Request is what the submitting end asks a node to look at. All paths are absolute.
type Request struct {
	Host    string            `json:"host"` // of the submitting end
	UID     int               `json:"uid"`
	Scratch string            `json:"scratch,omitempty"` // as in the executor block
	Marker  string            `json:"marker,omitempty"`  // a file in Scratch on the submitting machine
	Files   map[string]string `json:"files"`             // programs that pilots need: path to digest
	Folders []string          `json:"folders"`           // that pilots need, such as datasets
	Relay   uplink.Place      `json:"relay"`
}

// Report is what a node found.
type Report struct {
	Host    string         `json:"host"`
	Problem string         `json:"problem,omitempty"`
	Missing []string       `json:"missing,omitempty"` // files and folders that are not there
	Differ  []string       `json:"differ,omitempty"`  // files with another digest
	Scratch Scratch        `json:"scratch"`
	Relay   Reached        `json:"relay"`
	Doctor  *output.Doctor `json:"doctor,omitempty"`
}

// Scratch is the folder for attempts that are under way.
type Scratch struct {
	Dir    string `json:"dir,omitempty"`
	Free   int64  `json:"free_mib,omitempty"`
	Shared bool   `json:"shared,omitempty"` // the submitting machine has it, too
	Failed string `json:"failed,omitempty"`
}

// Reached says at which address the node found the relay.
type Reached struct {
	Address string `json:"address,omitempty"`
	Failed  string `json:"failed,omitempty"`
}

const (
	requestFile = "request.json"
	reportFile  = "report.json"
	outFile     = "job.out"

	connecting = time.Minute // how long the node tries all addresses of the relay
	maxFile    = 4 << 20     // bytes of a file of the other end
)

// Out is the file for what the job prints.
func Out(dir string) string { return filepath.Join(dir, outFile) }

func write(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dir, name), b, 0o600, renameio.WithTempDir(dir))
}

func read(dir, name string, v any) error {
	b, err := untrusted.Read(dir, name, maxFile)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	return nil
}

// Node is the end on a node.
type Node struct {
	Dir string // the shared folder
	// Scratch returns the folder for attempts; named is that of the executor block.
	Scratch func(named string) (string, error)
	Digest  func(file string) (string, error)
	Doctor  func(context.Context) (*output.Doctor, error)
}

// Work looks at everything and writes the report. Fails if the folder cannot be
// used; anything else that does not work is in the report.
func (n *Node) Work(ctx context.Context) error {
	var q Request
	if err := read(n.Dir, requestFile, &q); err != nil {
		return err
	}
	r := Report{}
	r.Host, _ = os.Hostname() //nolint:errcheck // an unknown host stays unnamed
	if uid := os.Getuid(); uid != q.UID {
		r.Problem = fmt.Sprintf("the job runs as user %d, not %d", uid, q.UID)
	}
	n.scratch(&q, &r)
	n.look(&q, &r)
	r.Relay = reach(ctx, q.Relay)
	var err error
	if r.Doctor, err = n.Doctor(ctx); err != nil {
		r.Problem = err.Error()
	}
	return write(n.Dir, reportFile, r)
}

// look finds files and folders.
func (n *Node) look(q *Request, r *Report) {
	for _, dir := range q.Folders {
		if _, err := os.ReadDir(dir); err != nil {
			r.Missing = append(r.Missing, err.Error())
		}
	}
	for _, file := range slices.Sorted(maps.Keys(q.Files)) {
		switch digest, err := n.Digest(file); {
		case err != nil:
			r.Missing = append(r.Missing, err.Error())
		case digest != q.Files[file]:
			r.Differ = append(r.Differ, file)
		}
	}
}

// scratch finds the folder for attempts.
func (n *Node) scratch(q *Request, r *Report) {
	dir, err := n.Scratch(q.Scratch)
	if err != nil {
		r.Scratch.Failed = err.Error()
		return
	}
	r.Scratch.Dir = dir
	if free, known := runtimedir.Free(dir); known {
		r.Scratch.Free = free >> 20
	}
	if q.Marker != "" && r.Host != q.Host {
		_, err = os.Stat(q.Marker)
		r.Scratch.Shared = err == nil
	}
}

// reach connects to the relay as a pilot does.
func reach(ctx context.Context, p uplink.Place) Reached {
	ctx, cancel := context.WithTimeout(ctx, connecting)
	defer cancel()
	c := uplink.NewClient("doctor", "", func() uplink.Place { return p })
	defer c.Close()
	at, err := c.Reachable(ctx)
	if err != nil {
		return Reached{Failed: err.Error()}
	}
	return Reached{Address: at}
}

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
	Args      []string      // of berth, for the job
	Request   Request       // without Relay and Marker
	Relay     string        // address for the relay, as --relay-address
	Wait      time.Duration // for the start of the job
	Late      time.Duration // for files of a job that has ended
	Every     time.Duration // how often the scheduler is asked for the job
	Say       func(text string)
}

// Seen is what one check found. Without a report, Failed says why there is none.
type Seen struct {
	Job    string
	Report *Report
	Failed string
}

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
	if c.Request.Scratch != "" {
		if f, failed := os.CreateTemp(c.Request.Scratch, ".doctor-"); failed == nil {
			defer os.Remove(f.Name()) //nolint:errcheck // nothing is left of it at worst
			c.Request.Marker = f.Name()
			_ = f.Close() //nolint:errcheck // it is empty
		}
	}
	if err = write(c.Dir, requestFile, c.Request); err != nil {
		return nil, err
	}
	s := &Seen{}
	if s.Job, err = c.Scheduler.Try(ctx, Out(c.Dir), c.Args...); err != nil {
		return nil, err
	}
	c.Say("submitted job " + s.Job)
	return s, c.follow(ctx, s)
}

// follow waits for the report of the node or the end of the job, whose time limit is
// short.
func (c *Check) follow(ctx context.Context, s *Seen) error {
	begin, gone, waits := time.Now(), time.Time{}, ""
	ask := time.NewTicker(c.Every)
	defer ask.Stop()
	look := time.NewTicker(min(c.Every, time.Second))
	defer look.Stop()
	for {
		// A name is looked for in a listing: that it does not exist may be remembered.
		entries, _ := os.ReadDir(c.Dir) //nolint:errcheck // it is asked again
		switch {
		case slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == reportFile }):
			s.Report = &Report{}
			return read(c.Dir, reportFile, s.Report)
		case !gone.IsZero() && time.Since(gone) > c.Late:
			s.Failed = "the job has ended, and left no report"
			return nil
		case waits != "" && time.Since(begin) > c.Wait:
			s.Failed = fmt.Sprintf("the job did not start within %s: %s", c.Wait, waits)
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-look.C:
		case <-ask.C:
			states, err := c.Scheduler.State(ctx)
			switch {
			case err != nil:
				c.Say(err.Error()) // the folder decides
			case len(states) == 0 && gone.IsZero():
				gone = time.Now()
			case len(states) > 0 && states[0].Waits != waits:
				if waits = states[0].Waits; waits != "" {
					c.Say(fmt.Sprintf("job %s waits: %s", s.Job, waits))
				}
			}
		}
	}
}
