package view

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/store"
)

// errMissing means that a page is about something that does not exist.
var errMissing = errors.New("not found")

// maxKept is how many runs are kept in memory. One of 10,000 trials takes some
// 10 MB.
const maxKept = 4

// runs reads runs and keeps the newest ones. Safe for concurrent use.
type runs struct {
	mu    sync.Mutex
	kept  map[string]*kept // by folder
	lines map[string]line  // of the list, by folder
}

// kept is a run as it was read.
type kept struct {
	numbers.Run
	stamp string
	read  time.Time // when it was read
	used  time.Time
}

// line is a run in the list of runs.
type line struct {
	stamp   string
	read    time.Time
	Name    string
	Error   string
	Summary *summary.Summary
	Busy    bool
}

// readAgain is after how long a run with a writer is read again although its
// files did not change: the writer may have been killed.
const readAgain = 5 * time.Second

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

// get returns the run in a folder as it is now.
func (c *runs) get(dir string) (*kept, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	stamp := stampOf(dir)
	if k := c.kept[dir]; k != nil && k.stamp == stamp && (k.Index.Writing() == nil || now.Sub(k.read) < readAgain) {
		k.used = now
		return k, nil
	}
	delete(c.kept, dir)
	m, x, err := store.Read(dir)
	if err != nil {
		return nil, err
	}
	k := &kept{Run: numbers.Run{Dir: dir, Manifest: m, Index: x}, stamp: stamp, read: now, used: now}
	c.kept[dir] = k
	for len(c.kept) > maxKept {
		oldest := ""
		for d, other := range c.kept {
			if oldest == "" || other.used.Before(c.kept[oldest].used) {
				oldest = d
			}
		}
		delete(c.kept, oldest)
	}
	return k, nil
}

// line returns the line of a run in the list. It keeps no more of the run.
func (c *runs) line(dir string) line {
	stamp := stampOf(dir)
	c.mu.Lock()
	l, ok := c.lines[dir]
	c.mu.Unlock()
	if ok && l.stamp == stamp && (!l.Busy || time.Since(l.read) < readAgain) {
		return l
	}
	l = line{stamp: stamp, read: time.Now(), Name: filepath.Base(dir)}
	if m, x, err := store.Read(dir); err != nil {
		l.Error = err.Error()
	} else {
		s := summary.Of(m, x)
		l.Summary, l.Busy = s, x.Writing() != nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lines == nil {
		c.lines = map[string]line{}
	}
	c.lines[dir] = l
	return l
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

// maxListed is how many runs are listed.
const maxListed = 500

// listPage shows the runs, those in progress first.
func (s *Server) listPage(r *request) error {
	all, err := s.dirs()
	if err != nil {
		return err
	}
	filter := strings.ToLower(r.FormValue("filter"))
	lines, more := []line{}, false
	for _, dir := range all {
		if !strings.Contains(strings.ToLower(filepath.Base(dir)), filter) {
			continue
		}
		if more = len(lines) == maxListed; more {
			break
		}
		lines = append(lines, s.runs.line(dir))
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(order(a.Busy), order(b.Busy)) })
	return r.show("list", "Runs", map[string]any{"Lines": lines, "More": more, "Most": maxListed, "Filter": r.FormValue("filter"), "Folder": s.o.Folder})
}

func order(first bool) int {
	if first {
		return 0
	}
	return 1
}
