// Package nodecheck finds out how a node of a cluster and the machine that submits
// jobs see the same folder. Both ends follow each other through this folder, as a
// run and its pilots do: they list folders, open journals again for each reading,
// and claim names by hard links.
//
//	request.json      what the node is to look at
//	here/, node/      files of one end each; the other end only reads them
//	claims/           names that both ends try to take at once
//	job.out           what the job prints
//
// It must not know a scheduler, and decides nothing by the clock of the other end.
package nodecheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/gateway/uplink"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Request is what the submitting end asks a node to look at. All paths are absolute.
type Request struct {
	Host    string            `json:"host"` // of the submitting end
	UID     int               `json:"uid"`
	Scratch string            `json:"scratch,omitempty"` // as in the executor block
	Files   map[string]string `json:"files"`             // programs that pilots need: path to digest; empty: no digest is known
	Folders []string          `json:"folders"`           // that pilots need, such as datasets
	Rooms   []Room            `json:"rooms,omitempty"`   // what pilots put into the scratch folder
	Relay   uplink.Place      `json:"relay"`
}

// Room is something that pilots put into the scratch folder, once a node.
type Room struct {
	What string `json:"what"`           // for people
	MiB  int64  `json:"mib"`            // what it needs, as far as is known
	From string `json:"from,omitempty"` // the file that it is made from; empty: another check finds that
	Copy string `json:"copy"`           // a path below the scratch folder that is there when it is
}

// Report is what a node found.
type Report struct {
	Host    string         `json:"host"`
	Folder  string         `json:"folder"` // file system of the shared folder
	Problem string         `json:"problem,omitempty"`
	Missing []string       `json:"missing,omitempty"` // files and folders that are not there
	Differ  []string       `json:"differ,omitempty"`  // files with another digest
	Names   Lateness       `json:"names"`             // of new files
	Lines   Lateness       `json:"lines"`             // of new lines in a journal
	Clock   Clock          `json:"clock"`
	Links   Claims         `json:"links"`
	Creates Claims         `json:"creates"`
	Scratch Scratch        `json:"scratch"`
	Relay   Reached        `json:"relay"`
	Doctor  *output.Doctor `json:"doctor,omitempty"`
}

// Lateness is how long the node waited until the other end had seen something of it,
// and the node had seen the answer.
type Lateness struct {
	Rounds  int     `json:"rounds"`
	Longest float64 `json:"longest_s"`
	Failed  string  `json:"failed,omitempty"`
}

// Clock is how far the node's clock is ahead, at most Error s away from the truth.
type Clock struct {
	Known bool    `json:"known"`
	Ahead float64 `json:"ahead_s"`
	Error float64 `json:"error_s"`
}

// Claims says which of the names this end took, in ascending order.
type Claims struct {
	Won    []int  `json:"won"`
	Failed string `json:"failed,omitempty"` // why a name could not be claimed at all
}

// Scratch is the folder for attempts that are under way.
type Scratch struct {
	Dir    string `json:"dir,omitempty"`
	System string `json:"system,omitempty"` // its file system
	Free   int64  `json:"free_mib,omitempty"`
	Needs  []Room `json:"needs,omitempty"`  // what is not there yet
	Marker string `json:"marker,omitempty"` // a file that is only there while the node works
	Failed string `json:"failed,omitempty"`
}

const (
	requestFile = "request.json"
	reportFile  = "report.json"
	beganFile   = "began.json"
	linesFile   = "lines"
	here        = "here"
	there       = "node"
	claims      = "claims"
	ping        = "ping-"
	claim       = "claim"
	marker      = "marker"
	outFile     = "job.out"

	// rounds is how often each lateness is measured: a cache that is filled by one
	// round shows in the next.
	rounds = 3
	// patience is how long the node waits for one answer. The caches of shared file
	// systems last up to a minute.
	patience = 150 * time.Second
	// tick is how often each end looks.
	tick = 20 * time.Millisecond
	// names is how many names both ends try to take.
	names = 24
	// between is the time from one name to the next, so that the other end, which looks
	// every tick, comes in time to want the same names.
	between = 5 * time.Millisecond
	// maxFile bounds what is read of a file of the other end.
	maxFile = 4 << 20
)

// Out is the file for what the job prints.
func Out(dir string) string { return filepath.Join(dir, outFile) }

// publish makes a file appear in dir with its whole content. The name is new.
func publish(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	return err
}

// read reads what publish wrote.
func read(file string, v any) error {
	b, err := bounded(file)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// bounded reads a file of at most maxFile bytes.
func bounded(file string) ([]byte, error) {
	return untrusted.Read(filepath.Dir(file), filepath.Base(file), maxFile)
}

// listed reports whether a listing of dir has a name. It does not look the name up,
// because the answer that it does not exist may be remembered.
func listed(dir, name string) bool {
	entries, _ := os.ReadDir(dir) //nolint:errcheck // it is asked again
	for _, e := range entries {
		if e.Name() == name {
			return true
		}
	}
	return false
}

// until asks again and again until it is answered, at most for a while.
func until(ctx context.Context, limit time.Duration, done func() bool) error {
	deadline := time.Now().Add(limit)
	for !done() {
		if time.Now().After(deadline) {
			return fmt.Errorf("nothing came within %s", limit)
		}
		if err := pause(ctx, tick); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// say adds a line to the journal of one end: a number, and the time of its clock.
func say(dir string, n int) error {
	f, err := os.OpenFile(filepath.Join(dir, linesFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d %d\n", n, time.Now().UnixNano())
	return errors.Join(err, f.Sync(), f.Close())
}

// said is the last whole line in the journal of an end; 0: none.
func said(dir string) (n int, at time.Time) {
	b, err := bounded(filepath.Join(dir, linesFile))
	if err != nil {
		return 0, at
	}
	whole, _, _ := strings.Cut(string(b[:bytes.LastIndexByte(b, '\n')+1]), "\x00") // a torn line may end in zeros
	for line := range strings.Lines(whole) {
		var nanoseconds int64
		if _, err = fmt.Sscan(line, &n, &nanoseconds); err != nil {
			return 0, at
		}
		at = time.Unix(0, nanoseconds)
	}
	return n, at
}

// take tries to take all names in a way that fails if a name is taken. Backwards, it
// begins with the last one, so that two ends that begin at about the same time meet in
// the middle.
func take(kind, who string, backwards bool, one func(path string) error) (c Claims) {
	for i := range names {
		if backwards {
			i = names - 1 - i
		}
		time.Sleep(between)
		path := kind + strconv.Itoa(i)
		switch err := one(path); {
		case err == nil:
			// An answer that got lost is not a claim: what is there decides.
			if b, failed := bounded(path); failed == nil && string(b) == who {
				c.Won = append(c.Won, i)
			}
		case !errors.Is(err, os.ErrExist):
			c.Failed = err.Error()
			return c
		}
	}
	return c
}

// claimAll takes names by hard links and by exclusive creation.
func claimAll(dir, who string, backwards bool) (links, creates Claims) {
	own := filepath.Join(dir, claims, "of-"+who)
	if err := os.WriteFile(own, []byte(who), 0o600); err != nil {
		failed := Claims{Failed: err.Error()}
		return failed, failed
	}
	links = take(filepath.Join(dir, claims, "link-"), who, backwards, func(path string) error { return os.Link(own, path) })
	creates = take(filepath.Join(dir, claims, "create-"), who, backwards, func(path string) error {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.WriteString(who)
		return errors.Join(err, f.Close())
	})
	return links, creates
}
