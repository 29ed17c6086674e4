package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"

	"github.com/berth-eval/berth/core/untrusted"
)

// line is the part of a line of the record that a player uses.
type line struct {
	Entry
	Role   string `json:"role"`
	Name   string `json:"name"`
	Status int    `json:"status"`
	Broken string `json:"broken"`
}

// Player replays the exchanges of one role with one model in one attempt. It is
// safe for concurrent use.
type Player struct {
	dir     string
	mu      sync.Mutex
	lines   []line
	played  []bool
	without []string // members of a request that may differ
}

// Bounds of reading a record.
const (
	maxLine   = 16 << 20 // bytes of one line
	maxRecord = 4 << 30  // bytes of all lines
)

// Open reads the record of an attempt: the file of lines, which is in the same
// folder as the bodies. without are the members of a request that are excluded
// from Entry.Match.
func Open(file, role, name string, without []string) (*Player, error) {
	p := &Player{dir: filepath.Dir(file), without: without}
	cut, err := untrusted.Lines(p.dir, filepath.Base(file), maxLine, maxRecord, func(text []byte) {
		var l line
		if json.Unmarshal(text, &l) != nil {
			return // a line that was cut off by a crash
		}
		if l.Role == role && l.Name == name && l.Match != "" && l.Reply != "" {
			p.lines = append(p.lines, l)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	if cut {
		return nil, fmt.Errorf("replay %s: a line of it, or all of it, is too long to be read", file)
	}
	p.played = make([]bool, len(p.lines))
	return p, nil
}

// DiffersError says that a request was not recorded, and where it differs from
// the next request in the record.
type DiffersError struct {
	Exchange   int // 1…, of the record
	Difference Difference
}

// Error says where the request differs.
func (e *DiffersError) Error() string {
	return fmt.Sprintf("the request differs from exchange %d of the recorded run: %s", e.Exchange, e.Difference)
}

// ErrOver means that the record has no further exchange of this kind.
var ErrOver = errors.New("the recorded run has no further exchange")

// Play answers a request: match is its digest without the members that may
// differ, body the whole request. A request that was recorded several times
// gets the answers in turn, and then the last one again.
func (p *Player) Play(kind, match string, body []byte) (*http.Response, error) {
	i, err := p.choose(kind, match)
	if err != nil {
		return nil, err
	}
	if i < 0 {
		return nil, p.differs(kind, body)
	}
	l := p.lines[i]
	if l.Status < http.StatusOK || l.Status > 599 {
		return nil, fmt.Errorf("the record is damaged: exchange %d has the status %d", i+1, l.Status)
	}
	reply, err := Fetch(p.dir, l.Reply)
	if err != nil {
		return nil, err
	}
	var content io.Reader = bytes.NewReader(reply)
	if l.Broken != "" {
		content = io.MultiReader(content, breaks{})
	}
	return &http.Response{StatusCode: l.Status, Header: http.Header{"Content-Type": {l.Type}}, Body: io.NopCloser(content)}, nil
}

// choose returns the index of the exchange to replay; -1 if none matches.
func (p *Player) choose(kind, match string) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	again, some := -1, false
	for i := range p.lines {
		some = some || p.lines[i].Kind == kind
		if p.lines[i].Kind != kind || p.lines[i].Match != match {
			continue
		}
		if !p.played[i] {
			p.played[i] = true
			return i, nil
		}
		again = i
	}
	if !some {
		return -1, ErrOver
	}
	return again, nil
}

// differs compares a request with the first one that was not replayed yet.
func (p *Player) differs(kind string, body []byte) error {
	p.mu.Lock()
	at := -1
	for i := range p.lines {
		if !p.played[i] && p.lines[i].Kind == kind {
			at = i
			break
		}
	}
	p.mu.Unlock()
	if at < 0 {
		return ErrOver
	}
	recorded, err := Fetch(p.dir, p.lines[at].Request)
	if err != nil {
		return err
	}
	d, differ := Diff(p.strip(recorded), p.strip(body))
	if !differ {
		d = Difference{Path: "the address, or how the same is written", Message: -1, Recorded: short(p.lines[at].Path), Now: "another"}
	}
	return &DiffersError{Exchange: at + 1, Difference: d}
}

func (p *Player) strip(body []byte) []byte {
	var o map[string]json.RawMessage
	if json.Unmarshal(body, &o) != nil {
		return body
	}
	for _, n := range p.without {
		delete(o, n)
	}
	b, err := json.Marshal(o)
	if err != nil {
		return body
	}
	return b
}

// breaks is the rest of an answer that was cut off.
type breaks struct{}

func (breaks) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
