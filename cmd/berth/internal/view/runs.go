package view

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/report/page"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// errMissing means that a page is about something that does not exist.
var errMissing = errors.New("not found")

// maxKept is how many runs are in memory: those that were asked for last.
const maxKept = 3

// runs reads runs and keeps those that were asked for last. Safe for concurrent
// use: a run that takes long to read does not delay requests for another one.
type runs struct {
	mu      sync.Mutex
	all     map[string]*entry // by folder
	listing sync.Mutex        // guards the lines of all entries
}

// entry is what is known of one run.
type entry struct {
	reading sync.Mutex // held while the run is read
	kept    atomic.Pointer[kept]
	used    time.Time // guarded by runs.mu
	line    line      // of the list, guarded by runs.listing
}

// kept is a run as it was read.
type kept struct {
	numbers.Run

	stamp  string
	read   time.Time // when it was read
	next   time.Time // before it, the run is not read again
	sum    func() *summary.Summary
	report func() (*page.Report, error)
}

// line is a run in the list of runs.
type line struct {
	stamp   string
	read    time.Time
	Name    string
	Error   string
	Summary *summary.Summary // nil with Error
	Busy    bool
}

// Bounds of how often a run is read again.
const (
	// readAgain is after how long a run with a writer is read again although its
	// files did not change: the writer may have been killed.
	readAgain = 5 * time.Second
	// restLeast and restTimes keep the reading of a large run that changes all the time
	// to a fifth of one processor.
	restLeast = 200 * time.Millisecond
	restTimes = 4
)

// stampOf says which state the files of a run have, without reading them.
func stampOf(dir string) string {
	var b strings.Builder
	add := func(path string) {
		if fi, err := os.Stat(path); err == nil {
			fmt.Fprintf(&b, "%s %d %d\n", filepath.Base(path), fi.Size(), fi.ModTime().UnixNano())
		}
	}
	add(filepath.Join(dir, store.ManifestFile))
	entries, _ := os.ReadDir(filepath.Join(dir, store.JournalDir)) // store.Read says what is wrong
	for _, e := range entries[:min(len(entries), 1000)] {
		add(filepath.Join(dir, store.JournalDir, e.Name()))
	}
	return b.String()
}

// entry returns the entry of a run, which was asked for now.
func (c *runs) entry(dir string) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[dir]
	if e == nil {
		e = &entry{}
		c.all[dir] = e
	}
	e.used = time.Now()
	return e
}

// get returns the run in a folder as it is now, or as it was a moment ago if it
// takes long to read.
func (c *runs) get(dir, berth string) (*kept, error) {
	e := c.entry(dir)
	if k := e.kept.Load(); k != nil && k.fresh(dir) {
		return k, nil
	}
	e.reading.Lock()
	defer e.reading.Unlock()
	if k := e.kept.Load(); k != nil && k.fresh(dir) { // another request has read it
		return k, nil
	}
	began, stamp := time.Now(), stampOf(dir)
	e.kept.Store(nil) // not both in memory
	m, x, err := store.Read(dir)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	k := &kept{Run: numbers.Run{Dir: dir, Manifest: m, Index: x}, stamp: stamp, read: began, next: now.Add(max(restLeast, restTimes*now.Sub(began)))}
	k.sum = sync.OnceValue(func() *summary.Summary { return summary.Of(m, x) })
	k.report = sync.OnceValues(func() (*page.Report, error) { return reportOf(&k.Run, berth) })
	e.kept.Store(k)
	c.trim(dir)
	return k, nil
}

// fresh reports whether the run need not be read again.
func (k *kept) fresh(dir string) bool {
	now := time.Now()
	return now.Before(k.next) || k.stamp == stampOf(dir) && (k.Index.Writing() == nil || now.Sub(k.read) < readAgain)
}

// trim forgets the runs that were not asked for the longest.
func (c *runs) trim(dir string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var others []*entry
	for d, e := range c.all {
		if d != dir && e.kept.Load() != nil {
			others = append(others, e)
		}
	}
	slices.SortFunc(others, func(a, b *entry) int { return b.used.Compare(a.used) })
	for _, e := range others[min(len(others), maxKept-1):] {
		e.kept.Store(nil)
	}
}

// lineOf returns the line of a run. It reads the run if its files have changed, and
// keeps no more of it.
func (c *runs) lineOf(dir string) line {
	e, stamp := c.entry(dir), stampOf(dir)
	c.listing.Lock()
	defer c.listing.Unlock()
	if l := e.line; l.stamp == stamp && (!l.Busy || time.Since(l.read) < readAgain) {
		return l
	}
	l := line{stamp: stamp, read: time.Now(), Name: filepath.Base(dir)}
	if l.Summary = ended(dir); l.Summary == nil {
		if m, x, err := store.Read(dir); err != nil {
			l.Error = err.Error()
		} else {
			l.Summary, l.Busy = summary.Of(m, x), x.Writing() != nil
		}
	}
	if l.Summary != nil {
		l.Summary.Cells, l.Summary.Tasks, l.Summary.Marks = nil, nil, nil // they may be large
	}
	e.line = l
	return l
}

// Bounds of what is read of a run that has ended.
const (
	maxSummary = 64 << 20 // bytes of its summary
	lastLine   = 16 << 10 // bytes at the end of a journal
)

// ended returns the summary that the last writer of a run stored at its end, if the
// journal has its checksum; nil if the journals have to be read.
func ended(dir string) *summary.Summary {
	names, err := untrusted.Dir(dir, store.JournalDir, 1000)
	if err != nil || len(names) == 0 {
		return nil
	}
	newest := slices.MaxFunc(names, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) }) // names begin with the time
	b := bytes.TrimSpace(lastBytes(dir, path.Join(store.JournalDir, newest.Name()), lastLine))
	var e store.Entry
	if !store.Unseal(b[bytes.LastIndexByte(b, '\n')+1:], &e) || e.Kind != store.WriterEnded || e.Sums[store.SummaryFile] == "" {
		return nil
	}
	text, err := untrusted.Read(dir, store.SummaryFile, maxSummary)
	s := &summary.Summary{}
	if err != nil || fmt.Sprintf("sha256:%x", sha256.Sum256(text)) != e.Sums[store.SummaryFile] || json.Unmarshal(text, s) != nil {
		return nil
	}
	return s
}

// dirs returns the folders of the runs that are shown, newest first.
func (s *Server) dirs() ([]string, error) {
	if len(s.o.Dirs) > 0 {
		return s.o.Dirs, nil
	}
	all, err := report.Runs(s.o.Folder)
	slices.Reverse(all)
	return all, err
}

// run returns the run with that name, the name of its folder. Of two runs with
// the same one, the first is meant.
func (s *Server) run(name string) (*kept, error) {
	all, err := s.dirs()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(dir string) bool { return filepath.Base(dir) == name })
	if i < 0 {
		return nil, fmt.Errorf("%w: no run %q is shown here", errMissing, name)
	}
	return s.runs.get(all[i], s.o.Berth)
}

// maxListed is how many runs are listed.
const maxListed = 500

// listPage shows the runs whose names contain a text, those in progress first.
func (s *Server) listPage(r *request) error {
	filter := r.FormValue("filter")
	all, err := s.dirs()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(slices.Clone(all), func(dir string) bool {
		return !strings.Contains(strings.ToLower(filepath.Base(dir)), strings.ToLower(filter))
	})
	var lines, rest []line
	for _, dir := range all[:min(len(all), maxListed)] {
		if l := s.runs.lineOf(dir); l.Busy {
			lines = append(lines, l)
		} else {
			rest = append(rest, l)
		}
	}
	return r.show("list", "Runs", map[string]any{
		"Lines": append(lines, rest...), "More": len(all) > maxListed, "Most": maxListed, "Filter": filter, "Folder": s.o.Folder, "Live": true,
	})
}
