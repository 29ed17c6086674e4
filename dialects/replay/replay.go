// Package replay answers requests to a model from the exchanges that the gateway
// recorded in an attempt. An equal request gets the same answer, byte for byte,
// and so does one that differs only in values that change from run to run. Any
// other request gets an error that says where it differs.
//
// It must not know providers, budgets or sockets.
package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"

	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// line is the part of a line of the record that a player uses.
type line struct {
	recording.Entry

	Role   string `json:"role"`
	Name   string `json:"name"`
	Status int    `json:"status"`
	Broken string `json:"broken"`

	Model       string `json:"model"`
	FallbackFor string `json:"fallback_for"`

	played bool
	plain  string // digest of the request without the values that change from run to run; empty: not known yet
}

// player implements dialect.Replayed: it replays the exchanges of one role with
// one model in one attempt.
type player struct {
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
// from recording.Entry.Match.
func Open(file, role, name string, without []string) (dialect.Replayed, error) {
	p := &player{dir: filepath.Dir(file), without: without, given: map[string]int{}}
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

// Is makes the error match dialect.ErrDiffers.
func (*DiffersError) Is(target error) bool { return target == dialect.ErrDiffers }

// ErrOver means that the record has no further exchange of this kind.
var ErrOver = errors.New("the recorded run has no further exchange")

// Answer implements dialect.Replayed. It takes the exchange with the same
// request, or the next one that differs only in values that change from run to
// run: ids, dates and times, durations, host names, process numbers and
// temporary paths. A request that was recorded several times gets the answers in
// turn; one that is sent again after that gets its last answer again.
func (p *player) Answer(r *dialect.Replay) (*http.Response, dialect.Served, error) {
	i, ignored, err := p.choose(r)
	if err != nil {
		return nil, dialect.Served{}, err
	}
	l := p.lines[i]
	if l.Status < http.StatusOK || l.Status > 599 {
		return nil, dialect.Served{}, fmt.Errorf("the record is damaged: exchange %d has the status %d", i+1, l.Status)
	}
	reply, err := recording.Fetch(p.dir, l.Reply)
	if err != nil {
		return nil, dialect.Served{}, err
	}
	by := dialect.Served{}
	if ignored != nil {
		by.Ignored = ignored.String()
	}
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
func (p *player) choose(r *dialect.Replay) (int, *Difference, error) {
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
	recorded, err := recording.Fetch(p.dir, p.lines[i].Request)
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
func (p *player) play(i int, r *dialect.Replay) int {
	p.lines[i].played = true
	p.given[r.Match] = i
	return i
}

// alike returns the index of the first exchange that was not replayed yet and
// differs only in values that change from run to run; -1: none.
func (p *player) alike(r *dialect.Replay) (int, error) {
	now := recording.Digest(plainly(p.strip(r.Body)))
	for i := range p.lines {
		l := &p.lines[i]
		if l.played || l.Kind != r.Kind || l.Path != r.Path {
			continue
		}
		if l.plain == "" {
			recorded, err := recording.Fetch(p.dir, l.Request)
			if err != nil {
				return -1, err
			}
			l.plain = recording.Digest(plainly(p.strip(recorded)))
		}
		if l.plain == now {
			return i, nil
		}
	}
	return -1, nil
}

// differs says where a request differs from an exchange, apart from values that
// change from run to run.
func (p *player) differs(i int, r *dialect.Replay) error {
	recorded, err := recording.Fetch(p.dir, p.lines[i].Request)
	if err != nil {
		return err
	}
	d, differ := Diff(plainly(p.strip(recorded)), plainly(p.strip(r.Body)))
	if !differ {
		d = Difference{Path: "the address", Message: -1, Recorded: short(p.lines[i].Path), Now: short(r.Path)}
	}
	return &DiffersError{Exchange: i + 1, Difference: d}
}

func (p *player) strip(body []byte) []byte {
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
