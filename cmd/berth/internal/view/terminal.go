package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"path"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
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
	return e, e.Kind == "o" || e.Kind == "m" // a size that changes could be any number
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
	in := report.NewLineReader(f)
	line, _, err := in.Next()
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
		line, _, err = in.Next()
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

// isCast reports whether a file is a recording of a terminal.
func isCast(name string) bool { return path.Ext(name) == ".cast" }
