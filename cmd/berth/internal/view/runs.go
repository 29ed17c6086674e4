package view

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
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
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// errMissing means that a page is about something that does not exist.
var errMissing = errors.New("not found")

// maxTrials is how many trials the runs in memory have together; the one that was
// asked for last is kept in any case. 10,000 trials take 11 MB after share, and up to
// 80 MB pass through the heap while they are read (both measured).
const maxTrials = 20_000

// runs reads runs and keeps those that were asked for last. Safe for concurrent
// use: a run that takes long to read does not delay requests for another one.
type runs struct {
	mu      sync.Mutex
	all     map[string]*entry // by folder
	work    sync.WaitGroup    // reads lines of the list
	turn    chan struct{}     // one line is read at a time
	version atomic.Int64      // of the list: it grows when a line has changed
}

// entry is what is known of one run.
type entry struct {
	reading sync.Mutex // held while the run is read
	kept    atomic.Pointer[kept]
	used    time.Time // guarded by runs.mu, as all below
	line    *line     // of the list; nil: not read yet
	busy    bool      // the line is being read
}

// kept is a run as it was read.
type kept struct {
	numbers.Run

	stamp string
	read  time.Time // when it was read
	next  time.Time // before it, the run is not read again
	sum   func() *summary.Summary
	board func() (*output.Table, error)

	now sync.Mutex // guards what follows
	at  *moment
}

// line is a run in the list of runs.
type line struct {
	stamp   string
	read    time.Time
	Name    string
	Error   string
	Summary *summary.Summary // nil with Error, and while Reading
	Busy    bool
	Reading bool
}

func newRuns() runs { return runs{all: map[string]*entry{}, turn: make(chan struct{}, 1)} }

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
func (c *runs) get(dir string) (*kept, error) {
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
	share(m, x)
	now := time.Now()
	k := &kept{Run: numbers.Run{Dir: dir, Manifest: m, Index: x}, stamp: stamp, read: began, next: now.Add(max(restLeast, restTimes*now.Sub(began)))}
	k.sum = sync.OnceValue(func() *summary.Summary { return summary.Of(m, x) })
	k.board = sync.OnceValues(func() (*output.Table, error) { return board(&k.Run) })
	e.kept.Store(k)
	c.trim(dir)
	return k, nil
}

// fresh reports whether the run need not be read again.
func (k *kept) fresh(dir string) bool {
	now := time.Now()
	return now.Before(k.next) || k.stamp == stampOf(dir) && (k.Index.Writing() == nil || now.Sub(k.read) < readAgain)
}

// rests reports whether the run is not read again yet, whatever has changed.
func (c *runs) rests(dir string) bool {
	k := c.entry(dir).kept.Load()
	return k != nil && time.Now().Before(k.next)
}

// trim forgets the runs that were not asked for the longest.
func (c *runs) trim(dir string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	type old struct {
		*entry

		trials int
	}
	var others []old
	all := 0
	for d, e := range c.all {
		if k := e.kept.Load(); k != nil {
			all += len(k.Manifest.Trials)
			if d != dir {
				others = append(others, old{e, len(k.Manifest.Trials)})
			}
		}
	}
	slices.SortFunc(others, func(a, b old) int { return a.used.Compare(b.used) })
	for _, o := range others {
		if all <= maxTrials {
			return
		}
		o.kept.Store(nil)
		all -= o.trials
	}
}

// share makes trials use one copy of what is equal in them: most of the memory of a
// run is texts and maps that all of its attempts have.
func share(m *store.Manifest, x *store.Index) {
	texts := map[string]string{}
	one := func(s *string) {
		if same, known := texts[*s]; known {
			*s = same
		} else {
			texts[*s] = *s
		}
	}
	for i := range m.Trials {
		t := &m.Trials[i]
		for _, s := range []*string{&t.Task, &t.TaskDigest, &t.Dataset, &t.Category, &t.Difficulty} {
			one(s)
		}
	}
	maps := map[string]map[string]string{}
	for _, t := range x.Trials {
		t.Attempts = slices.Clip(t.Attempts)
		for i := range t.Attempts {
			one(&t.Attempts[i].By)
			b := t.Attempts[i].Result
			if b == nil {
				continue
			}
			b.Digests, b.Labels = equal(maps, b.Digests), equal(maps, b.Labels)
		}
	}
}

// equal returns a map of the same content that was seen before, or this one.
func equal(seen map[string]map[string]string, m map[string]string) map[string]string {
	key := fmt.Sprint(m) // in the order of the keys
	if same, known := seen[key]; known {
		return same
	}
	seen[key] = m
	return m
}

// lineNow returns the line of a run as far as it is known, and begins to read it
// again if its files have changed.
func (c *runs) lineNow(dir string) line {
	e, stamp := c.entry(dir), stampOf(dir)
	c.mu.Lock()
	defer c.mu.Unlock()
	l := line{Name: filepath.Base(dir), Reading: true}
	if e.line != nil {
		l = *e.line
	}
	if !e.busy && (e.line == nil || l.stamp != stamp || l.Busy && time.Since(l.read) > readAgain) {
		e.busy = true
		c.work.Go(func() { c.readLine(e, dir, stamp) })
	}
	return l
}

// readLine reads the line of a run. It keeps no more of the run.
func (c *runs) readLine(e *entry, dir, stamp string) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	l := &line{stamp: stamp, read: time.Now(), Name: filepath.Base(dir)}
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
	c.mu.Lock()
	defer c.mu.Unlock()
	e.line, e.busy = l, false
	c.version.Add(1)
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
	return s.runs.get(all[i])
}

const (
	maxListed = 500                    // runs that are listed
	listWait  = 400 * time.Millisecond // that a page waits for lines
)

// lines returns the lines of the runs whose names contain a text, those in progress
// first.
func (s *Server) lines(filter string) (lines []line, more, reading bool, err error) {
	all, err := s.dirs()
	for _, dir := range all {
		if !strings.Contains(strings.ToLower(filepath.Base(dir)), strings.ToLower(filter)) {
			continue
		}
		if more = len(lines) == maxListed; more {
			break
		}
		l := s.runs.lineNow(dir)
		reading = reading || l.Reading
		lines = append(lines, l)
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(order(a.Busy), order(b.Busy)) })
	return lines, more, reading, err
}

// listPage shows the runs. A line that takes long to read comes later.
func (s *Server) listPage(r *request) error {
	filter, state := r.FormValue("filter"), s.listState()
	lines, more, reading, err := s.lines(filter)
	for end := time.Now().Add(listWait); err == nil && reading && time.Now().Before(end); {
		select {
		case <-r.Context().Done():
			return nil
		case <-time.After(listWait / 20):
		}
		state = s.listState()
		lines, more, reading, err = s.lines(filter)
	}
	if err != nil {
		return err
	}
	return r.show("list", "Runs", map[string]any{
		"Lines": lines, "More": more, "Most": maxListed, "Filter": filter, "Folder": s.o.Folder, "Live": "/changes?state=" + digest(state),
	})
}

func order(first bool) int {
	if first {
		return 0
	}
	return 1
}

// listState is the state of the list of runs.
func (s *Server) listState() string {
	all, err := s.dirs()
	if err != nil {
		return err.Error()
	}
	for _, dir := range all[:min(len(all), maxListed)] {
		s.runs.lineNow(dir)
	}
	return fmt.Sprintln(len(all), s.runs.version.Load())
}

// listChanges tells a browser when a run has begun, changed or gone.
func (s *Server) listChanges(w http.ResponseWriter, hr *http.Request) {
	s.tell(w, hr, func() (string, bool) { return s.listState(), true })
}
