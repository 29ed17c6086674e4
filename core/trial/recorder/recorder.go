// Package recorder writes the record of an attempt as it happens: events,
// steps, turns, verdicts, findings, the log. It replaces secret values
// everywhere, and enforces the length limits.
//
// It knows only exact secret values and guesses nothing. It must not decide
// what anything means.
package recorder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/redact"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Recorder writes the record as it happens, without secrets and within the
// limits. Safe for concurrent use.
type Recorder struct {
	to     Journal
	redact atomic.Pointer[redact.Redactor]
	now    func() time.Time
	live   func(record.Event)
	plain  plain

	mu       sync.Mutex
	secrets  []string
	findings []record.Finding
	more     int // findings beyond the limit
	logged   int64
	logMost  int64 // bytes
	steps    int64 // of the agent
	err      error // the first failure to write
}

// Journal is where the lines are stored (package store).
type Journal interface {
	// Append adds v as one line of JSON to a file of the attempt, at once.
	Append(file string, v any) error
}

// New makes a Recorder. now is the clock; live, which may be nil, sees events as
// they happen and must not block.
func New(to Journal, now func() time.Time, live func(record.Event)) *Recorder {
	return &Recorder{to: to, now: now, live: live, logMost: limits.LogBytes}
}

// Hide hides further values in everything that is written from now on.
func (s *Recorder) Hide(values ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets = append(s.secrets, values...)
	s.redact.Store(redact.New(s.secrets...))
}

// Redactor returns the redactor of the hidden values.
func (s *Recorder) Redactor() *redact.Redactor { return s.redact.Load() }

// Now returns the time of the record's clock.
func (s *Recorder) Now() time.Time { return s.now() }

// Append adds a line to a file of the record.
func (s *Recorder) Append(file string, v any) {
	s.plain.Lock()
	defer s.plain.Unlock()
	raw, err := json.Marshal(v)
	var b []byte
	if err == nil {
		b, err = s.Redactor().JSON(json.RawMessage(raw))
	}
	if err == nil {
		err = errors.Join(s.plain.add(file, raw, b), s.to.Append(file, json.RawMessage(b)))
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err == nil {
			s.err = fmt.Errorf("write %s: %w", file, err)
		}
	}
}

// Broken returns the first write failure, if any: an attempt with an incomplete
// record does not continue.
func (s *Recorder) Broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Event records an event and sends it to the watcher.
func (s *Recorder) Event(e record.Event) {
	e.Time = s.now()
	s.Append(record.EventsFile, e)
	s.Tell(e)
}

// Tell sends an event to the watcher without recording it.
func (s *Recorder) Tell(e record.Event) {
	if s.live == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = s.now()
	}
	s.live(e)
}

// Finding records a finding.
func (s *Recorder) Finding(at record.Phase, who string, f verifier.Finding) {
	f.Code, f.Text = s.Text(f.Code, 100), s.Text(f.Text, limits.FindingText)
	r := record.Finding{Finding: f, By: who, Phase: at.Name, Stage: at.Stage}
	s.mu.Lock()
	if len(s.findings) >= limits.Findings && f.Severity == verifier.Note {
		s.more++
		s.mu.Unlock()
		return
	}
	s.findings = append(s.findings, r)
	s.mu.Unlock()
	s.Event(record.Event{Type: record.EventFinding, Phase: at.Name, Stage: at.Stage, Finding: &r})
}

// Note records a finding of the core with severity note.
func (s *Recorder) Note(at record.Phase, code, format string, args ...any) {
	s.Finding(at, ByCore, verifier.Finding{Code: code, Severity: verifier.Note, Text: fmt.Sprintf(format, args...)})
}

// Exposed records a finding of the core: the result could have been influenced.
func (s *Recorder) Exposed(at record.Phase, code, format string, args ...any) {
	s.Finding(at, ByCore, verifier.Finding{Code: code, Severity: verifier.Exposed, Text: fmt.Sprintf(format, args...)})
}

// Violated records a finding of the core: the graded work cannot be trusted.
func (s *Recorder) Violated(at record.Phase, code, format string, args ...any) {
	s.Finding(at, ByCore, verifier.Finding{Code: code, Severity: verifier.Violated, Text: fmt.Sprintf(format, args...)})
}

// ByCore is the source of the core's own findings.
const ByCore = "core"

// All returns the findings so far.
func (s *Recorder) All() []record.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := append([]record.Finding(nil), s.findings...)
	if s.more > 0 {
		out = append(out, record.Finding{By: ByCore, Finding: verifier.Finding{
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

// Log records a line of a plugin's log.
func (s *Recorder) Log(from, stage, text string) {
	text = s.Text(strings.TrimRight(text, "\n"), limits.LogLine)
	s.mu.Lock()
	before := s.logged
	s.logged += int64(len(text)) + 1
	s.mu.Unlock()
	if before >= s.logMost {
		return
	}
	if before+int64(len(text))+1 >= s.logMost {
		text = fmt.Sprintf("the log has %d bytes, and no more is kept", s.logMost)
	}
	s.Append(record.LogFile, line{Time: s.now(), From: from, Stage: stage, Text: text})
}

// Text returns t without secrets, in valid UTF-8, and no longer than limit
// bytes.
func (s *Recorder) Text(t string, limit int) string { return Cut(s.Redactor().Text(t), limit) }

// Cut shortens s to limit bytes and says how much is missing.
func Cut(s string, limit int) string {
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

// Steps returns how many steps the agent took so far, in all its sessions.
func (s *Recorder) Steps() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.steps
}

// plain keeps those files of the record that held secrets, as they were: they are what
// verifiers judge.
type plain struct {
	sync.Mutex // of the order of lines

	record string                 // the folder of the record
	folder func() (string, error) // makes the folder for these files, which goes with the attempt; nil: none are kept
	files  map[string]bool
}

// KeepPlain also keeps the lines of the record in record as they were. Each file that
// held secrets is whole in the folder that folder makes.
func (s *Recorder) KeepPlain(record string, folder func() (string, error)) {
	s.plain.record, s.plain.folder, s.plain.files = record, folder, map[string]bool{}
}

// add adds a line to a file that has held secrets, or begins one with the first line
// that does. The caller holds the lock, and adds the line to the record afterwards.
func (p *plain) add(file string, raw, masked []byte) error {
	if p.folder == nil || !p.files[file] && bytes.Equal(raw, masked) {
		return nil
	}
	dir, err := p.folder()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(dir, file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if !p.files[file] {
		err = before(out, filepath.Join(p.record, file))
		p.files[file] = true
	}
	if err == nil {
		_, err = out.Write(append(raw, '\n'))
	}
	return errors.Join(err, out.Close())
}

// before copies the lines that are in the record.
func before(out io.Writer, file string) error {
	in, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(out, in)
	return err
}

// HostValues returns the values of the host variables that a task may see. They
// may be secret, so the record must not contain them.
func HostValues(t *task.Task, lookup func(string) (string, bool)) []string {
	var out []string
	for _, e := range t.Envs() {
		for _, name := range e.HostVars() {
			if v, ok := lookup(name); ok {
				out = append(out, v)
			}
		}
	}
	return out
}
