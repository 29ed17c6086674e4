package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/plugins/runtimedir"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Bounds of a recording of a terminal.
const (
	maxCast    = 16 << 20 // bytes that a player gets
	maxColumns = 500
	maxRows    = 300
)

// castHeader is the first line of a recording (asciicast, versions 2 and 3).
type castHeader struct {
	Version   int     `json:"version"`
	Width     int     `json:"width"`
	Height    int     `json:"height"`
	Timestamp float64 `json:"timestamp"` // seconds since 1970
	Title     string  `json:"title,omitempty"`
	Term      *struct {
		Columns int `json:"cols"`
		Rows    int `json:"rows"`
	} `json:"term,omitempty"`
}

// headerOf reads the first line of a recording.
func headerOf(line []byte) (h castHeader, err error) {
	if err = json.Unmarshal(line, &h); err != nil {
		return h, fmt.Errorf("the first line of the recording cannot be read: %w", err)
	}
	if h.Term != nil {
		h.Width, h.Height = h.Term.Columns, h.Term.Rows
	}
	if h.Version != 2 && h.Version != 3 {
		return h, fmt.Errorf("it is not an asciicast of version 2 or 3: version %d", h.Version)
	}
	h.Width, h.Height = min(max(h.Width, 1), maxColumns), min(max(h.Height, 1), maxRows)
	if math.IsNaN(h.Timestamp) || math.Abs(h.Timestamp) > 1e11 {
		h.Timestamp = 0
	}
	return h, nil
}

// castEvent is an event of a recording.
type castEvent struct {
	At   float64 // seconds since the beginning
	Kind string
	Text string
}

// MarshalJSON writes it as in version 2.
func (e castEvent) MarshalJSON() ([]byte, error) { return json.Marshal([]any{e.At, e.Kind, e.Text}) }

// eventOf reads an event after one at a time; ok is false for a line that a player
// would not understand.
func eventOf(line []byte, h *castHeader, last float64) (e castEvent, ok bool) {
	var parts []json.RawMessage
	if json.Unmarshal(line, &parts) != nil || len(parts) != 3 ||
		json.Unmarshal(parts[0], &e.At) != nil || json.Unmarshal(parts[1], &e.Kind) != nil || json.Unmarshal(parts[2], &e.Text) != nil {
		return e, false
	}
	if h.Version == 3 {
		e.At += last // it has the time since the event before
	}
	if math.IsNaN(e.At) || e.At < last || e.At > 1e9 {
		e.At = last
	}
	switch e.Kind {
	case "o", "i", "m":
		return e, true
	case "r":
		columns, rows, _ := strings.Cut(e.Text, "x")
		c, errC := strconv.Atoi(columns)
		r, errR := strconv.Atoi(rows)
		e.Text = fmt.Sprintf("%dx%d", min(max(c, 1), maxColumns), min(max(r, 1), maxRows))
		return e, errC == nil && errR == nil
	}
	return e, false
}

// cast serves a recording to the player. What a player would not understand is left
// out, so that it shows the rest.
func (s *Server) cast(w http.ResponseWriter, hr *http.Request) {
	r := &request{Request: hr, s: s, w: w}
	a, err := s.attempt(r)
	var out bytes.Buffer
	if err == nil {
		err = playable(&out, a.dir, r.FormValue("name"))
	}
	if err != nil {
		http.Error(w, "the recording is not shown: "+err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(out.Bytes())
}

// playable writes a recording in version 2, up to maxCast bytes.
func playable(out *bytes.Buffer, dir, name string) error {
	f, err := untrusted.Open(dir, name, maxFile)
	if err != nil {
		return err
	}
	defer f.Close()
	in := newCounted(f)
	line, _, err := in.line()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	h, err := headerOf(line)
	if err != nil {
		return err
	}
	write := json.NewEncoder(out) // of values that can be written
	if err = write.Encode(castHeader{Version: 2, Width: h.Width, Height: h.Height, Timestamp: h.Timestamp}); err != nil {
		return err
	}
	last := 0.0
	for {
		line, _, err = in.line()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		e, ok := eventOf(line, &h, last)
		if !ok {
			continue
		}
		if out.Len() > maxCast {
			return write.Encode(castEvent{last, "m", fmt.Sprintf("only the first %d MiB are played", maxCast>>20)})
		}
		last = e.At
		if err = write.Encode(e); err != nil {
			return err
		}
	}
}

// place is a file in a folder that a process of a run writes to.
type place struct{ dir, name string }

// living returns the recordings of terminals that the session of an attempt in
// progress writes on this machine. They come into the folder of the attempt when the
// session ends. A recording says in its title whose it is.
func (s *Server) living(a *attempt) (all []place) {
	var folders []string
	for _, dir := range runtimedir.Dirs() {
		owners, _ := filepath.Glob(filepath.Join(dir, "*", "*", "owner.json")) // the pattern is a valid one
		for _, file := range owners {
			b, err := untrusted.Read(filepath.Dir(file), filepath.Base(file), 1<<20)
			var o node.Owner
			if err == nil && json.Unmarshal(b, &o) == nil && o.Run == a.run {
				folders = append(folders, filepath.Dir(file))
				if filepath.Base(o.Disk) == filepath.Base(filepath.Dir(file)) {
					folders = append(folders, o.Disk)
				}
			}
		}
	}
	session := fmt.Sprintf("%s/%d/", a.Trial.ID, a.Number)
	for _, dir := range folders {
		casts, _ := filepath.Glob(filepath.Join(dir, "*", "scratch-*", "*.cast"))
		for _, file := range casts {
			p := place{filepath.Dir(file), filepath.Base(file)}
			lines, _, err := readPart(p.dir, p.name, 0, 1)
			if err != nil || len(lines) == 0 {
				continue
			}
			if h, headErr := headerOf(lines[0].b); headErr == nil && strings.HasPrefix(h.Title, session) && len(all) < maxInline {
				all = append(all, p)
			}
		}
	}
	return all
}

const (
	watchEvery = 150 * time.Millisecond // a terminal that is watched
	maxInit    = 2 << 20                // bytes that it had written before
)

// terminal sends what the terminal of an attempt in progress gets, as server-sent
// events in the form that the player reads.
func (s *Server) terminal(w http.ResponseWriter, hr *http.Request) {
	r := &request{Request: hr, s: s, w: w}
	a, err := s.attempt(r)
	var all []place
	if err == nil {
		all = s.living(a)
	}
	n := r.number("n")
	if err != nil || n >= int64(len(all)) {
		http.Error(w, "there is no such terminal any more", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	t := &watched{place: all[n], out: w}
	for {
		if err = t.more(); errors.Is(err, fs.ErrNotExist) {
			_, _ = fmt.Fprint(w, "event: done\ndata: {}\n\n")
			return
		}
		if err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(watchEvery):
		}
	}
}

// watched is a recording that grows.
type watched struct {
	place

	out  io.Writer
	at   int64
	last float64
	head *castHeader
	said int // events so far
}

// more sends what has been added.
func (t *watched) more() error {
	var news []castEvent
	for {
		lines, next, err := readPart(t.dir, t.name, t.at, 5000)
		if err != nil {
			return err
		}
		for _, l := range lines {
			if t.head == nil {
				h, headErr := headerOf(l.b)
				if headErr != nil {
					return headErr
				}
				t.head = &h
			} else if e, ok := eventOf(l.b, t.head, t.last); ok {
				t.last = e.At
				news = append(news, e)
			}
		}
		if t.at = next; len(lines) == 0 {
			break
		}
	}
	if t.head == nil {
		return nil
	}
	if t.said == 0 { // what was there before comes at once
		t.said++
		var before strings.Builder
		for _, e := range news {
			if e.Kind == "o" {
				before.WriteString(e.Text)
			}
		}
		init := before.String()
		init = strings.ToValidUTF8(init[max(0, len(init)-maxInit):], "")
		return t.send(map[string]any{"cols": t.head.Width, "rows": t.head.Height, "time": t.last, "init": init})
	}
	for _, e := range news {
		if err := t.send(e); err != nil {
			return err
		}
	}
	return nil
}

func (t *watched) send(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(t.out, "data: %s\n\n", b)
	}
	return err
}

// isCast reports whether a file is a recording of a terminal.
func isCast(name string) bool { return path.Ext(name) == ".cast" }
