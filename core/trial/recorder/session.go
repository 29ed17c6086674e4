package recorder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// SessionRecorder is the Recorder of a session. It writes while a turn or Close
// runs, and ignores everything that comes later.
type SessionRecorder struct {
	s    *Recorder
	role agent.Role

	mu      sync.Mutex
	writing bool
	stage   string
	turn    int
	message string // of the user; the core itself records its step
	first   bool
	steps   int64
	size    int64
	most    int64 // steps
	stopped bool

	clock func() time.Duration // the time of the turn
	heard time.Duration        // when it last recorded or logged something, by clock
	spoke bool                 // it did so in this turn
}

// ForSession makes the recorder of one session, for its role.
func ForSession(s *Recorder, role agent.Role) *SessionRecorder {
	return &SessionRecorder{s: s, role: role, most: limits.Steps}
}

var errNotWriting = errors.New("the turn is over: nothing more is recorded")

// Begin lets the session record a turn, until End. clock returns the time of the
// turn so far; see Heard.
func (p *SessionRecorder) Begin(stage string, turn int, clock func() time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing, p.stage, p.turn, p.first = true, stage, turn, true
	p.clock, p.heard, p.spoke = clock, 0, false
}

// Heard returns when, by the clock of the turn, the session last recorded or
// logged something, and whether it has done so in this turn.
func (p *SessionRecorder) Heard() (at time.Duration, spoke bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard, p.spoke
}

// hear notes that the session is alive. The caller holds the lock.
func (p *SessionRecorder) hear() {
	if p.clock != nil {
		p.heard, p.spoke = p.clock(), true
	}
}

// Resume lets the session write again, about the last turn.
func (p *SessionRecorder) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing, p.first = true, false
}

// End ends a turn.
func (p *SessionRecorder) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = false
}

// Said records a message to the agent as a step of its trajectory.
func (p *SessionRecorder) Said(stage string, turn int, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage, p.turn, p.message = stage, turn, text
	p.write(trajectory.Step{Source: trajectory.User, Message: trajectory.Text(text)})
}

// Step implements agent.Recorder.
func (p *SessionRecorder) Step(s trajectory.Step) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.writing {
		return errNotWriting
	}
	p.hear()
	first := p.first
	p.first = false
	if first && s.Source == trajectory.User && s.Message.Parts == nil && s.Message.Text == p.message {
		return nil // the core has recorded it already
	}
	p.write(s)
	who := record.ByAgent
	if p.role == agent.RoleUser {
		who = record.ByUser
	}
	p.s.Tell(record.Event{Type: record.EventStep, Stage: p.stage, Turn: p.turn, Who: who})
	return nil
}

// write appends a step. The caller holds the lock.
func (p *SessionRecorder) write(s trajectory.Step) {
	at := record.Phase{Name: record.PhaseTurn, Stage: p.stage}
	if p.stopped {
		return
	}
	if p.steps >= p.most || p.size >= limits.StepsBytes {
		p.stopped = true
		p.s.Note(at, "steps_cut", "the session recorded %d steps of %d bytes, and no more are kept", p.steps, p.size)
		return
	}
	p.steps++
	s.StepID = p.steps
	if s.Timestamp == "" {
		s.Timestamp = trajectory.Stamp(p.s.now())
	}
	line := record.Step{Time: p.s.now(), Stage: p.stage, Turn: p.turn, Role: string(p.role), Step: s}
	b, err := json.Marshal(line)
	if err != nil {
		p.s.Note(at, "bad_step", "step %d is not valid JSON: %s", s.StepID, err)
		p.steps--
		return
	}
	if len(b) > limits.StepBytes {
		line.Cut, line.Step = true, fit(s)
	}
	if p.role == agent.RoleAgent && s.Source == trajectory.Model {
		p.s.mu.Lock()
		p.s.steps++
		p.s.mu.Unlock()
	}
	p.size += int64(min(len(b), limits.StepBytes))
	p.s.Append(record.StepsFile, line)
}

// fit shortens a step until it fits. The texts that remain say what was
// dropped.
func fit(s trajectory.Step) trajectory.Step {
	for limit := limits.StepText; limit >= limits.OutputTail; limit /= 16 {
		short := shorten(s, limit)
		if b, err := json.Marshal(short); err == nil && len(b) <= limits.StepBytes*3/4 {
			return short
		}
	}
	short := trajectory.Step{StepID: s.StepID, Timestamp: s.Timestamp, Source: s.Source, LLMCallCount: s.LLMCallCount}
	short.Message = trajectory.Text(fmt.Sprintf("%s… (%d tool calls and their results were too long to keep)",
		Cut(s.Message.Text, limits.OutputTail), len(s.ToolCalls)))
	return short
}

// shorten cuts each text of a step to limit bytes, and leaves out data of the model.
func shorten(s trajectory.Step, limit int) (short trajectory.Step) {
	s.Extra = nil
	if s.Metrics != nil {
		m := *s.Metrics
		m.PromptTokenIDs, m.CompletionTokenIDs, m.Logprobs, m.Extra = nil, nil, nil, nil
		s.Metrics = &m
	}
	var tree any
	d := json.NewDecoder(bytes.NewReader(cell.JSON(s)))
	d.UseNumber()
	if d.Decode(&tree) != nil || json.Unmarshal(cell.JSON(cutTexts(tree, limit)), &short) != nil {
		short = trajectory.Step{StepID: s.StepID, Timestamp: s.Timestamp, Source: s.Source}
	}
	return short
}

// cutTexts cuts each text of a JSON tree.
func cutTexts(tree any, limit int) any {
	switch t := tree.(type) {
	case string:
		return Cut(t, limit)
	case []any:
		for i := range t {
			t[i] = cutTexts(t[i], limit)
		}
	case map[string]any:
		for k := range t {
			t[k] = cutTexts(t[k], limit)
		}
	}
	return tree
}

// Log implements agent.Recorder.
func (p *SessionRecorder) Log(line string) error {
	p.mu.Lock()
	stage, writing := p.stage, p.writing
	p.hear()
	p.mu.Unlock()
	if !writing {
		return errNotWriting
	}
	p.s.Log(string(p.role), stage, line)
	return nil
}

// Artifact implements agent.Recorder.
func (p *SessionRecorder) Artifact(path string) error {
	return p.Log(fmt.Sprintf("artifact %q", path))
}
