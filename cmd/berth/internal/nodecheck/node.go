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
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/gateway/uplink"
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

// connecting is how long the node tries all addresses of the relay.
const connecting = time.Minute

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
	r.Scratch = n.scratch(q.Scratch)
	defer os.Remove(r.Scratch.Marker) //nolint:errcheck // nothing is left of it at worst
	if err := n.exchange(ctx, &r); err != nil {
		return err
	}
	n.look(&q, &r)
	r.Relay = reach(ctx, q.Relay)
	var err error
	if r.Doctor, err = n.Doctor(ctx); err != nil {
		r.Problem = err.Error()
	}
	return publish(n.Dir, reportFile, r)
}

// exchange shows a file to the other end, waits for its answer, and tries hard links.
func (n *Node) exchange(ctx context.Context, r *Report) error {
	begin := time.Now()
	if err := publish(n.Dir, beganFile, r); err != nil {
		return err
	}
	for !listed(n.Dir, answerFile) {
		if time.Since(begin) > patience {
			r.Late = fmt.Sprintf("nothing came within %s", patience)
			break
		}
		if err := pause(ctx, tick); err != nil {
			return err
		}
	}
	r.Answer = time.Since(begin).Seconds()
	request := filepath.Join(n.Dir, requestFile)
	if err := os.Link(request, filepath.Join(n.Dir, linkedFile)); err != nil {
		r.Links = err.Error()
	} else if err = os.Link(request, filepath.Join(n.Dir, takenFile)); !errors.Is(err, os.ErrExist) {
		r.Links = fmt.Sprintf("a name that the other end has taken can be taken again (%v)", err)
	}
	return nil
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
		case q.Files[file] != "" && digest != q.Files[file]:
			r.Differ = append(r.Differ, file)
		}
	}
}

// scratch finds the folder for attempts, and leaves a file in it for the other end to
// look for.
func (n *Node) scratch(named string) (s Scratch) {
	dir, err := n.Scratch(named)
	s.Dir = dir
	if err == nil {
		if free, known := runtimedir.Free(dir); known {
			s.Free = free >> 20
		}
		s.Marker = filepath.Join(dir, ".doctor-"+rand.Text())
		err = os.WriteFile(s.Marker, make([]byte, 4096), 0o600)
	}
	if err != nil {
		s.Failed, s.Marker = err.Error(), ""
	}
	return s
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
