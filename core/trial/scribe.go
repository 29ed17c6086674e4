package trial

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/bound"
	"github.com/berth-eval/berth/core/trial/redact"
	"github.com/berth-eval/berth/plugins/verifier"
)

// scribe writes the record as it happens. No secret passes it, and nothing
// that is longer than its bound. Safe for concurrent use.
type scribe struct {
	to     Attempt
	redact *redact.Redactor
	now    func() time.Time
	live   func(record.Event)

	mu       sync.Mutex
	findings []record.Finding
	more     int // findings that were not kept
	logged   int64
	err      error // the first failure to write
}

func (s *scribe) append(file string, v any) {
	b, err := s.redact.JSON(v)
	if err == nil {
		err = s.to.Append(file, json.RawMessage(b))
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err == nil {
			s.err = fmt.Errorf("write %s: %w", file, err)
		}
	}
}

// broken is the first failure to write, if there was one: an attempt whose
// record has a hole does not go on.
func (s *scribe) broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *scribe) event(e record.Event) {
	e.Time = s.now()
	s.append(record.EventsFile, e)
	s.tell(e)
}

// tell shows an event to whoever watches, without writing it down.
func (s *scribe) tell(e record.Event) {
	if s.live == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = s.now()
	}
	s.live(e)
}

// finding records something odd.
func (s *scribe) finding(at record.Phase, who string, f verifier.Finding) {
	f.Code, f.Text = s.text(f.Code, 100), s.text(f.Text, bound.FindingText)
	r := record.Finding{Finding: f, By: who, Phase: at.Name, Stage: at.Stage}
	s.mu.Lock()
	if len(s.findings) >= bound.Findings && f.Severity == verifier.Note {
		s.more++
		s.mu.Unlock()
		return
	}
	s.findings = append(s.findings, r)
	s.mu.Unlock()
	s.event(record.Event{Type: record.EventFinding, Phase: at.Name, Stage: at.Stage, Finding: &r})
}

func (s *scribe) note(at record.Phase, code, format string, args ...any) {
	s.finding(at, byCore, verifier.Finding{Code: code, Severity: verifier.Note, Text: fmt.Sprintf(format, args...)})
}

func (s *scribe) exposed(at record.Phase, code, format string, args ...any) {
	s.finding(at, byCore, verifier.Finding{Code: code, Severity: verifier.Exposed, Text: fmt.Sprintf(format, args...)})
}

// byCore is who sees what the core itself sees.
const byCore = "core"

func (s *scribe) all() []record.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := append([]record.Finding(nil), s.findings...)
	if s.more > 0 {
		out = append(out, record.Finding{By: byCore, Finding: verifier.Finding{
			Code: "more_findings", Severity: verifier.Note, Text: fmt.Sprintf("%d further notes were not kept", s.more),
		}})
	}
	return out
}

// line is one line of the attempt's log.
type line struct {
	Time  time.Time `json:"time"`
	From  string    `json:"from"`
	Stage string    `json:"stage,omitempty"`
	Text  string    `json:"text"`
}

// log keeps a line of a plugin for people.
func (s *scribe) log(from, stage, text string) {
	text = s.text(strings.TrimRight(text, "\n"), bound.LogLine)
	s.mu.Lock()
	before := s.logged
	s.logged += int64(len(text)) + 1
	s.mu.Unlock()
	if before >= bound.LogBytes {
		return
	}
	if before+int64(len(text))+1 >= bound.LogBytes {
		text = fmt.Sprintf("the log has %d bytes, and no more is kept", int64(bound.LogBytes))
	}
	s.append(record.LogFile, line{Time: s.now(), From: from, Stage: stage, Text: text})
}

// text is s without secrets, in UTF-8, and no longer than limit bytes.
func (s *scribe) text(t string, limit int) string { return cut(s.redact.Text(t), limit) }

// cut shortens s to limit bytes and says how much is missing.
func cut(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	at := limit
	for at > 0 && !utf8.RuneStart(s[at]) {
		at--
	}
	return fmt.Sprintf("%s… (%d bytes more)", s[:at], len(s)-at)
}
