package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"path"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
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
	first, at, err := report.ReadPart(dir, name, 0, 1)
	if err != nil {
		return err
	}
	if len(first) == 0 {
		return errors.New("it has no line")
	}
	h, err := headerOf(first[0].Text)
	if err != nil {
		return err
	}
	write := json.NewEncoder(out) // of values that can be written, into memory
	_ = write.Encode(castHeader{Version: 2, Width: h.Width, Height: h.Height, Timestamp: h.Timestamp})
	last := 0.0
	for out.Len() < maxCast {
		lines, next, err := report.ReadPart(dir, name, at, 10_000)
		if err != nil || len(lines) == 0 {
			return err
		}
		for _, l := range lines {
			if e, ok := eventOf(l.Text, &h, &last); ok {
				_ = write.Encode(e)
			}
		}
		at = next
	}
	return nil
}

// eventOf reads an event; ok is false for a line that a player would not understand,
// and for a size that changes, since it could be any number.
func eventOf(line []byte, h *castHeader, last *float64) (e [3]any, ok bool) {
	_ = json.Unmarshal(line, &e) // what is not an event has no kind
	at, _ := e[0].(float64)
	if h.Version == 3 {
		at += *last // it has the time since the event before
	}
	if at >= *last && at <= 1e9 {
		*last = at
	}
	e[0] = *last
	_, isText := e[2].(string)
	return e, isText && (e[1] == "o" || e[1] == "m")
}

// isCast reports whether a file is a recording of a terminal.
func isCast(name string) bool { return path.Ext(name) == ".cast" }
