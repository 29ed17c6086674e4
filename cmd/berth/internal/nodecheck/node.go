package nodecheck

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

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
	if err := read(filepath.Join(n.Dir, requestFile), &q); err != nil {
		return err
	}
	host, _ := os.Hostname() //nolint:errcheck // an unknown host stays unnamed
	own := filepath.Join(n.Dir, there)
	if err := publish(own, beganFile, host); err != nil {
		return err
	}
	r := Report{Host: host, Folder: fileSystem(n.Dir)}
	if uid := os.Getuid(); uid != q.UID {
		r.Problem = fmt.Sprintf("the job runs as user %d, not %d", uid, q.UID)
	}
	n.look(&q, &r)
	r.Relay = reach(ctx, q.Relay)
	undo := n.scratch(&q, &r)
	defer undo()
	err := n.measure(ctx, &r)
	if err != nil {
		return err
	}
	if r.Doctor, err = n.Doctor(ctx); err != nil {
		r.Problem = err.Error()
	}
	return publish(own, reportFile, r)
}

// look finds files and folders.
func (n *Node) look(q *Request, r *Report) {
	for _, dir := range q.Folders {
		if _, err := os.ReadDir(dir); err != nil {
			r.Missing = append(r.Missing, err.Error())
		}
	}
	for _, room := range q.Rooms {
		if _, err := os.Stat(room.From); err != nil && room.From != "" {
			r.Missing = append(r.Missing, err.Error())
		}
	}
	for _, file := range slices.Sorted(maps.Keys(q.Files)) {
		switch digest, err := n.Digest(file); {
		case err != nil:
			r.Missing = append(r.Missing, err.Error())
		case q.Files[file] != "" && digest != q.Files[file]:
			r.Differ = append(r.Differ, file)
		}
	}
}

// scratch finds the folder for attempts, and leaves a file in it for the other end to
// look for until undo is called.
func (n *Node) scratch(q *Request, r *Report) (undo func()) {
	dir, err := n.Scratch(q.Scratch)
	s := &r.Scratch
	s.Dir = dir
	if err == nil {
		s.System = fileSystem(dir)
		if free, known := runtimedir.Free(dir); known {
			s.Free = free >> 20
		}
		for _, room := range q.Rooms {
			if _, absent := os.Lstat(filepath.Join(dir, room.Copy)); absent != nil {
				s.Needs = append(s.Needs, room)
			}
		}
		s.Marker = filepath.Join(dir, ".doctor-"+rand.Text())
		err = os.WriteFile(s.Marker, make([]byte, 4096), 0o600)
	}
	if err != nil {
		s.Failed, s.Marker = err.Error(), ""
		return func() {}
	}
	return func() { _ = os.Remove(s.Marker) }
}

// measure does what needs both ends.
func (n *Node) measure(ctx context.Context, r *Report) error {
	own, other := filepath.Join(n.Dir, there), filepath.Join(n.Dir, here)
	r.Names = repeat(func(i int) error {
		name := ping + strconv.Itoa(i)
		begin := time.Now()
		if err := publish(own, name, begin); err != nil {
			return err
		}
		if err := until(ctx, patience, func() bool { return listed(other, name) }); err != nil {
			return err
		}
		took := time.Since(begin)
		var answered time.Time
		if err := read(filepath.Join(other, name), &answered); err != nil {
			return err
		}
		r.Clock.compare(begin, took, answered)
		return nil
	})
	if err := publish(own, marker, r.Scratch.Marker); err != nil {
		return err
	}
	r.Lines = repeat(func(i int) error {
		begin := time.Now()
		if err := say(own, i); err != nil {
			return err
		}
		n, answered := 0, time.Time{}
		err := until(ctx, patience, func() bool { n, answered = said(other); return n >= i })
		if err == nil {
			r.Clock.compare(begin, time.Since(begin), answered)
		}
		return err
	})
	// Whether the other end answers or not, the claims of this end are made.
	err := publish(own, claim, nil)
	if err == nil && r.Names.Failed == "" {
		err = until(ctx, patience, func() bool { return listed(other, claim) })
	}
	r.Links, r.Creates = claimAll(n.Dir, there, true)
	if ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

// compare compares the clocks by one question, which was asked at begin and answered
// by the other end at some time while it took. The shortest one says most.
func (c *Clock) compare(begin time.Time, took time.Duration, answered time.Time) {
	if e := took.Seconds() / 2; !c.Known || e < c.Error {
		// Wall clocks, without the monotonic reading.
		*c = Clock{Known: true, Ahead: begin.Round(0).Add(took / 2).Sub(answered).Seconds(), Error: e}
	}
}

// repeat measures some rounds, and no more after one that failed.
func repeat(round func(i int) error) (l Lateness) {
	for i := range rounds {
		begin := time.Now()
		if err := round(i + 1); err != nil {
			l.Failed = err.Error()
			return l
		}
		l.Rounds++
		l.Longest = max(l.Longest, time.Since(begin).Seconds())
	}
	return l
}

// fileSystem names the type of the file system of a folder; empty: it is not known.
func fileSystem(dir string) string {
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target
	}
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(dir))
	if err != nil {
		return ""
	}
	longest := &mountinfo.Info{}
	for _, m := range mounts {
		above := strings.HasPrefix(dir+"/", strings.TrimSuffix(m.Mountpoint, "/")+"/")
		if above && len(m.Mountpoint) >= len(longest.Mountpoint) { // of two at one place, the later one is seen
			longest = m
		}
	}
	return longest.FSType
}
