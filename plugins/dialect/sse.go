package dialect

import (
	"bytes"
	"encoding/json"
)

// maxEvent is how many bytes of one event are kept for reading, 32 MiB. A
// larger event is passed on without being read.
const maxEvent = 32 << 20

// Event is one server-sent event.
type Event struct {
	Name string // of its last `event:` line; empty: none
	Data []byte // its `data:` lines, joined by line feeds; valid until the next event
	Raw  []byte // all its bytes, with the blank line; valid until the next event
}

// Events splits a stream of bytes into server-sent events. The pieces may be
// cut anywhere: in a line, in a character, between \r and \n. The zero value is
// ready for use. Not safe for concurrent use.
type Events struct {
	buf      []byte // of the current event
	scanned  int    // of buf, up to the last whole line
	tooLarge bool
}

// Write adds bytes and calls do for each event that they complete.
func (s *Events) Write(p []byte, do func(Event)) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			s.keep(p)
			return
		}
		s.keep(p[:i+1])
		p = p[i+1:]
		line := s.buf[s.scanned:]
		s.scanned = len(s.buf)
		if len(bytes.TrimRight(line, "\r\n")) > 0 {
			continue
		}
		if !s.tooLarge {
			do(parseEvent(s.buf))
		}
		s.buf, s.scanned, s.tooLarge = s.buf[:0], 0, false
	}
}

// Rest returns the bytes after the last blank line: an event that was cut off.
func (s *Events) Rest() []byte { return s.buf }

// End calls do with the event after the last blank line, if it is whole.
func (s *Events) End(do func(Event)) {
	if e := parseEvent(s.buf); !s.tooLarge && (json.Valid(e.Data) || string(e.Data) == "[DONE]") {
		do(e)
	}
}

func (s *Events) keep(p []byte) {
	if len(p) > 2 && len(s.buf)+len(p) > maxEvent { // 2: a blank line is always detected
		s.tooLarge = true
		s.buf, s.scanned = append(s.buf[:0], 'x'), 0
		p = p[len(p)-1:]
	}
	s.buf = append(s.buf, p...)
}

func parseEvent(raw []byte) Event {
	e := Event{Raw: raw}
	var all bytes.Buffer // for several data lines
	lines := 0
	for line := range bytes.SplitSeq(raw, []byte{'\n'}) {
		line = bytes.TrimSuffix(line, []byte{'\r'})
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "event":
			e.Name = string(value)
		case "data":
			if lines++; lines == 1 {
				e.Data = value
				continue
			}
			if lines == 2 {
				all.Write(e.Data)
			}
			all.WriteByte('\n')
			all.Write(value)
		}
	}
	if lines > 1 {
		e.Data = all.Bytes()
	}
	return e
}
