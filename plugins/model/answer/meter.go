package answer

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
)

// Meter reads the usage of a reply that passes by. It never fails, and ignores
// anything that it does not understand. Not safe for concurrent use.
type Meter struct {
	dialect model.Dialect
	r       dialect.Reading
	usage   Usage
	whole   bool // it has read an answer in one piece
	called  bool // a tool of the client
}

// NewMeter returns a meter for answers in a dialect.
func NewMeter(d model.Dialect) *Meter { return &Meter{dialect: d} }

// Event reads one event of a stream.
func (m *Meter) Event(e dialect.Event) {
	data := bytes.TrimSpace(e.Data)
	v, ok := parse(data)
	switch {
	case len(data) == 0:
	case string(data) == "[DONE]":
		m.r.Ended = true
	case ok && v.IsObject():
		m.add(v)
	case e.Name == "error":
		m.r.Error = cmp.Or(m.r.Error, v.String(), string(data))
	case !ok:
		m.r.Invalid = true
	default:
		r := &reader{}
		r.note("an event", v)
		m.note(r.p.Notes)
	}
}

// Body reads a whole reply, which may also be a recorded stream.
func (m *Meter) Body(b []byte) {
	v, ok := parse(b)
	switch {
	case ok && v.IsArray(): // a stream in one array
		v.ForEach(func(_, e gjson.Result) bool {
			if e.IsObject() {
				m.add(e)
			}
			return true
		})
	case ok && v.IsObject():
		m.whole, m.r.Ended = true, m.add(v).Message
	case !ok:
		var events dialect.Events
		events.Write(b, m.Event)
		events.End(m.Event)
	}
}

// add adds an event, or a whole answer.
func (m *Meter) add(v gjson.Result) Piece {
	p := read(m.dialect, v)
	m.r.ID, m.r.Error = cmp.Or(m.r.ID, p.ID), cmp.Or(m.r.Error, p.Error)
	m.r.Ended = m.r.Ended || p.End
	m.r.Stop, m.called = cmp.Or(m.r.Stop, p.Reason), m.called || p.Called
	m.r.Said += p.Said
	m.usage.add(&p.Usage)
	m.note(p.Notes)
	return p
}

func (m *Meter) note(notes []string) {
	for _, n := range notes {
		if len(m.r.Notes) < maxNotes && !slices.Contains(m.r.Notes, n) {
			m.r.Notes = append(m.r.Notes, n)
		}
	}
}

// Read returns the result so far.
func (m *Meter) Read() dialect.Reading {
	r := m.r
	if m.called && stops[strings.ToLower(r.Stop)] == Done { // some providers have no word for it
		r.Stop = dialect.Called
	}
	var in, out bool
	r.Usage, in, out = m.usage.Tokens()
	r.Raw, r.StatedUSD = m.usage.json, m.usage.usd
	// A request without input, or text without output, was not counted.
	r.Complete = (r.Ended || m.whole) && in && out && r.Usage.Input > 0 && (r.Usage.Output > 0 || r.Said == 0)
	return r
}
