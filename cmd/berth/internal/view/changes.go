package view

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/record"
)

// lookEvery is how often the files of a run are looked at for a browser that
// follows it.
const lookEvery = 500 * time.Millisecond

// changes tells a browser when the files of a run or of one attempt have changed.
// It only looks at their sizes and times.
func (s *Server) changes(w http.ResponseWriter, hr *http.Request) {
	k, err := s.run(hr.PathValue("run"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	trial := hr.FormValue("trial")
	if trial == "" {
		s.tell(w, hr, func() (string, bool) { return s.runs.state(k.Dir, stampOf(k.Dir)), !s.runs.rests(k.Dir) })
		return
	}
	a, err := s.find(hr.PathValue("run"), trial, hr.FormValue("attempt"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	s.tell(w, hr, func() (string, bool) { return s.attemptState(a), true })
}

// state is the state of a run as a page shows it: of its files, and of the attempts
// in progress, whose phases are in no journal.
func (c *runs) state(dir, stamp string) string {
	if k := c.entry(dir).kept.Load(); k != nil && k.Index.Writing() != nil {
		return stamp + fmt.Sprint(time.Now().Unix()/2)
	}
	return stamp
}

// attemptState is the state of an attempt: of its files, of the notes of readers, and in
// the journal, which changes when the process that makes the attempt was killed.
func (s *Server) attemptState(a *attempt) string {
	now, err := s.find(a.Name, a.Trial.ID, strconv.Itoa(a.Number))
	if err != nil {
		return err.Error()
	}
	return attemptStamp(a.dir) + notesStamp(a.run) + string(now.State)
}

// digest makes a short name of a state.
func digest(state string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(state)) // it never fails
	return strconv.FormatUint(h.Sum64(), 16)
}

// tell sends server-sent events to a browser: one whenever what state returns has
// changed, and is ready to be shown. The first may come at once, if it differs from
// what the page shows, or from the last one that a browser got before it lost the
// connection.
func (s *Server) tell(w http.ResponseWriter, hr *http.Request, state func() (text string, ready bool)) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	last := cmp.Or(hr.Header.Get("Last-Event-ID"), hr.FormValue("state"))
	if last == "" {
		now, _ := state()
		last = digest(now)
	}
	send := func(text string) bool {
		_, err := fmt.Fprint(w, text)
		return err == nil && out.Flush() == nil
	}
	if !send("retry: 1000\n\n") {
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		text, ready := state()
		now := digest(text)
		switch {
		case now != last && ready:
			if last = now; !send("id: " + now + "\ndata: changed\n\n") {
				return
			}
		case n%30 == 0 && !send(": still here\n\n"):
			return
		}
		select {
		case <-hr.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// attemptStamp says which state the files of an attempt have that a page shows.
func attemptStamp(dir string) string {
	var b strings.Builder
	for _, name := range []string{
		record.EventsFile, record.StepsFile, record.TurnsFile, record.VerdictsFile, record.SurfaceFile, record.ResultFile, record.ExchangesFile, record.LogFile,
	} {
		if fi, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(name))); err == nil {
			fmt.Fprintf(&b, "%s %d %d\n", name, fi.Size(), fi.ModTime().UnixNano())
		}
	}
	return b.String()
}
