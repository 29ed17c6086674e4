package view

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/record"
)

// lookEvery is how often the files of a run are looked at for a browser that
// follows it.
const lookEvery = 500 * time.Millisecond

// changes tells a browser, with server-sent events, when the files of a run or of
// one attempt have changed. It only looks at their sizes and times.
func (s *Server) changes(w http.ResponseWriter, hr *http.Request) {
	r := &request{Request: hr, s: s, w: w}
	k, err := s.run(r.PathValue("run"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	dir := ""
	if trial := r.FormValue("trial"); trial != "" {
		a, err := s.find(r.PathValue("run"), trial, r.FormValue("attempt"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		dir = a.dir
	}
	stamp := func() string {
		if dir == "" {
			return stampOf(k.Dir)
		}
		return attemptStamp(dir)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	last := stamp()
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
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
		now := stamp()
		switch {
		case now != last:
			if last = now; !send("data: changed\n\n") {
				return
			}
		case n%30 == 0 && !send(": still here\n\n"):
			return
		}
	}
}

// attemptStamp says which state the files of an attempt have that a page shows.
func attemptStamp(dir string) string {
	var b strings.Builder
	for _, name := range []string{record.EventsFile, record.StepsFile, record.TurnsFile, record.VerdictsFile, record.SurfaceFile, record.ResultFile, record.ExchangesFile} {
		if fi, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(name))); err == nil {
			fmt.Fprintf(&b, "%s %d %d\n", name, fi.Size(), fi.ModTime().UnixNano())
		}
	}
	return b.String()
}
