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

	Model       string `json:"model"`
	FallbackFor string `json:"fallback_for"`

	played bool
	plain  string // digest of the request without the values that change from run to run; empty: not known yet
}

// Player replays the exchanges of one role with one model in one attempt. It is
// safe for concurrent use.
type Player struct {
	dir     string
	mu      sync.Mutex
	lines   []line
	given   map[string]int // by the Match of a request of this run: the exchange that answered it
	without []string       // members of a request that may differ
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
	p := &Player{dir: filepath.Dir(file), without: without, given: map[string]int{}}
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
	return p, nil
}

// DiffersError says that a request was not recorded, and where it differs from
// the next request in the record. Values that change from run to run are shown
// by the name of their kind.
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

// Request is a request to be answered from a record.
type Request struct {
	Kind  string // as in Entry
	Path  string
	Match string // digest without the members that may differ
	Body  []byte // the whole request
}

// Served says how a request was answered from a record.
type Served struct {
	// Fallback is the model that had served the request as a fallback; empty:
	// the model itself had.
	Fallback string
	// Ignored is the first difference from the recorded request, in a value
	// that changes from run to run; nil: there is none.
	Ignored *Difference
}

// Play answers a request with what the same request was answered in the record.
// If there is none, it takes the next one that differs only in values that
// change from run to run: ids, dates and times, durations, host names, process
// numbers and temporary paths. A request that was recorded several times gets
// the answers in turn; one that is sent again after that gets its last answer
// again.
func (p *Player) Play(r *Request) (*http.Response, Served, error) {
	i, ignored, err := p.choose(r)
	if err != nil {
		return nil, Served{}, err
	}
	l := p.lines[i]
	if l.Status < http.StatusOK || l.Status > 599 {
		return nil, Served{}, fmt.Errorf("the record is damaged: exchange %d has the status %d", i+1, l.Status)
	}
	reply, err := Fetch(p.dir, l.Reply)
	if err != nil {
		return nil, Served{}, err
	}
	by := Served{Ignored: ignored}
	if l.FallbackFor != "" {
		by.Fallback = l.Model
	}
	var content io.Reader = bytes.NewReader(reply)
	if l.Broken != "" {
		content = io.MultiReader(content, breaks{})
	}
	return &http.Response{StatusCode: l.Status, Header: http.Header{"Content-Type": {l.Type}}, Body: io.NopCloser(content)}, by, nil
}

// choose returns the index of the exchange to replay.
func (p *Player) choose(r *Request) (int, *Difference, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next, some := -1, false
	for i := range p.lines {
		if p.lines[i].Kind != r.Kind {
			continue
		}
		some = true
		if p.lines[i].played {
			continue
		}
		if p.lines[i].Match == r.Match {
			return p.play(i, r), nil, nil
		}
		if next < 0 {
			next = i
		}
	}
	if i, again := p.given[r.Match]; again {
		return i, nil, nil
	}
	if !some || next < 0 {
		return -1, nil, ErrOver
	}
	i, err := p.alike(r)
	if err != nil {
		return -1, nil, err
	}
	if i < 0 {
		return -1, nil, p.differs(next, r)
	}
	recorded, err := Fetch(p.dir, p.lines[i].Request)
	if err != nil {
		return -1, nil, err
	}
	d, differ := Diff(p.strip(recorded), p.strip(r.Body))
	if !differ {
		d = Difference{Path: "how the same is written", Message: -1, Recorded: "one way", Now: "another"}
	}
	return p.play(i, r), &d, nil
}

// play marks an exchange as replayed.
func (p *Player) play(i int, r *Request) int {
	p.lines[i].played = true
	p.given[r.Match] = i
	return i
}

// alike returns the index of the first exchange that was not replayed yet and
// differs only in values that change from run to run; -1: none.
func (p *Player) alike(r *Request) (int, error) {
	now := Digest(plainly(p.strip(r.Body)))
	for i := range p.lines {
		l := &p.lines[i]
		if l.played || l.Kind != r.Kind || l.Path != r.Path {
			continue
		}
		if l.plain == "" {
			recorded, err := Fetch(p.dir, l.Request)
			if err != nil {
				return -1, err
			}
			l.plain = Digest(plainly(p.strip(recorded)))
		}
		if l.plain == now {
			return i, nil
		}
	}
	return -1, nil
}

// differs says where a request differs from an exchange, apart from values that
// change from run to run.
func (p *Player) differs(i int, r *Request) error {
	recorded, err := Fetch(p.dir, p.lines[i].Request)
	if err != nil {
		return err
	}
	d, differ := Diff(plainly(p.strip(recorded)), plainly(p.strip(r.Body)))
	if !differ {
		d = Difference{Path: "the address", Message: -1, Recorded: short(p.lines[i].Path), Now: short(r.Path)}
	}
	return &DiffersError{Exchange: i + 1, Difference: d}
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
