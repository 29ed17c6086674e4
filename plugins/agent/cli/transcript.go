package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// Limits of what goes into a step, in bytes: the core keeps steps below 1 MiB.
const (
	maxText   = 200 << 10
	maxResult = 60 << 10
	maxCalls  = 500 // of one step; further ones go into a new step
	maxID     = 200 // of a response
)

// Transcript builds steps from the CLI's events: a message of the model with its
// calls, and their results. It records a step as soon as it is complete. The
// steps of a sub-agent (In) go into their own file.
type Transcript struct {
	rec    agent.Recorder
	err    error             // the core is gone
	unsent []trajectory.Step // steps not recorded because of err
	said   string            // the last text of the model
	last   string            // the last text of this turn
	agent  trajectory.Agent  // the CLI, in the files of sub-agents
	model  string
	effort string
	dir    string // scratch; empty: nowhere

	open    *trajectory.Step
	text    *growing // of open
	thought *growing
	id      string // of the message in open
	pending int    // calls of open that have no result yet
	count   int64  // steps of the model so far

	messages int64       // messages without an id
	spentNow agent.Claim // of this turn, as the CLI reports it
	spentAll agent.Claim // of the session, for a CLI that reports totals

	whole   func() // called when a step of the model is recorded
	most    int64  // limit of the model's steps; 0: none
	subs    map[string]*Transcript
	steps   []trajectory.Step // of a sub-agent
	sub     string            // call that started the sub-agent; empty: the agent itself
	goesOn  bool              // a sub-agent that continues after the result of its call
	ended   bool              // a sub-agent that has ended
	hold    bool              // a step ends with Next only, not with the result of its last call
	Session string            // the CLI's id of the session; set by Events
}

func newTranscript(model, effort, dir string) *Transcript {
	return &Transcript{
		agent: trajectory.Agent{Name: "subagent", Version: "1", ModelName: model}, model: model, effort: effort, dir: dir, subs: map[string]*Transcript{},
		text: &growing{}, thought: &growing{},
	}
}

// step returns the open step for the message id.
func (b *Transcript) step(id string) *trajectory.Step {
	if b.open != nil && b.id == id {
		return b.open
	}
	b.Flush()
	b.id = id
	b.open = &trajectory.Step{
		Timestamp: trajectory.Stamp(time.Now()), Source: trajectory.Model, ModelName: b.model, ReasoningEffort: trajectory.Effort(b.effort),
	}
	return b.open
}

// Say adds text to the model's message id. For a CLI without ids, pass an empty
// id and call Next where a message ends.
func (b *Transcript) Say(id, text string) {
	if text == "" {
		return
	}
	b.step(id)
	b.text.add(text)
	b.last = text
}

// Think adds the model's reasoning to message id.
func (b *Transcript) Think(id, text string) {
	if text == "" {
		return
	}
	b.step(id)
	b.thought.add(text)
}

// words returns the last text of the model so far.
func (b *Transcript) words() string {
	if b.open != nil && b.text.some {
		return b.text.String()
	}
	return b.said
}

// growing is a text that arrives in pieces, of which only the beginning is kept if it
// is very long.
type growing struct {
	text strings.Builder
	some bool // a piece was added, maybe an empty one
}

// add adds a piece, on its own line.
func (g *growing) add(piece string) {
	if g.some {
		piece = "\n" + piece
	}
	g.some = true
	g.text.WriteString(piece[:min(len(piece), max(0, 4*maxText-g.text.Len()))])
}

func (g *growing) String() string { return output.Middle(g.text.String(), maxText) }

// Call adds a tool call to the model's message id. Arguments that are not an
// object are wrapped in one. If a call is added again, the last values count.
func (b *Transcript) Call(id, call, name string, arguments json.RawMessage) {
	if b.open != nil {
		for i := range b.open.ToolCalls {
			if c := &b.open.ToolCalls[i]; c.ID == call {
				if now := object(arguments); string(now) != "{}" {
					c.Arguments = now
				}
				return
			}
		}
	}
	if b.open != nil && b.id == id && len(b.open.ToolCalls) >= maxCalls {
		b.Flush()
	}
	s := b.step(id)
	s.ToolCalls = append(s.ToolCalls, trajectory.ToolCall{ID: call, Name: name, Arguments: object(arguments)})
	b.pending++
}

// object returns raw as a JSON object of limited size.
func object(raw json.RawMessage) json.RawMessage {
	var m map[string]json.RawMessage
	if len(raw) <= maxText && json.Unmarshal(raw, &m) == nil && m != nil {
		return raw
	}
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("{}")
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	if json.Unmarshal([]byte(text), &m) == nil && m != nil && len(text) <= maxText {
		return json.RawMessage(text) // an object inside a JSON string
	}
	b, err := json.Marshal(map[string]string{"input": output.Middle(text, maxResult)})
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}

// Result adds the result of a call. The result of an unknown call becomes a
// step of the system.
func (b *Transcript) Result(call, text string, failed bool) {
	text = output.Middle(text, maxResult)
	content := trajectory.Text(text)
	r := trajectory.Result{SourceCallID: call, Content: &content}
	if failed {
		r.Extra = json.RawMessage(`{"is_error":true}`)
	}
	if !b.called(call) {
		b.Note(trajectory.System, text)
		return
	}
	if b.open.Observation == nil {
		b.open.Observation = &trajectory.Observation{}
	}
	if sub, ok := b.subs[call]; ok {
		if ref, ok := sub.reference(); ok {
			r.Subagents = append(r.Subagents, ref)
		}
		if !sub.goesOn {
			sub.close()
			delete(b.subs, call)
		}
	}
	b.open.Observation.Results = append(b.open.Observation.Results, r)
	if b.pending--; b.pending <= 0 && !b.hold {
		b.Flush()
	}
}

// Hold makes a step last until Next, for a CLI that reports the calls of one
// message one by one, each with its result.
func (b *Transcript) Hold() { b.hold = true }

// Empty ends a message of the model that has neither text nor calls, such as a
// refusal, and maybe reasoning. c is its usage; the zero value is unknown.
func (b *Transcript) Empty(c agent.Claim) {
	if b.open == nil || len(b.open.ToolCalls) > 0 {
		b.Flush()
		b.step("")
	}
	b.Use(b.id, c)
	b.Flush()
}

// Waits reports whether a call of the open message has no result yet: the given
// call, or any call if it is empty.
func (b *Transcript) Waits(call string) bool {
	return b.open != nil && b.pending > 0 && (call == "" || b.called(call))
}

// spent reports whether the steps of the model are used up.
func (b *Transcript) spent() bool { return b.most > 0 && b.count >= b.most }

// silent reports whether the model has said nothing in the session yet.
func (b *Transcript) silent() bool { return b.count == 0 && b.open == nil }

// called reports whether the open step contains the call and it has no result
// yet.
func (b *Transcript) called(call string) bool {
	if b.open == nil {
		return false
	}
	known := false
	for i := range b.open.ToolCalls {
		known = known || b.open.ToolCalls[i].ID == call
	}
	if known && b.open.Observation != nil {
		for _, r := range b.open.Observation.Results {
			if r.SourceCallID == call {
				return false
			}
		}
	}
	return known
}

// Use sets the usage of message id as the CLI reports it; nil is unknown. It is
// recorded in the step only. Used and UsedSoFar count the usage of the turn.
func (b *Transcript) Use(id string, c agent.Claim) {
	if c == (agent.Claim{}) {
		return
	}
	b.step(id).Metrics = &trajectory.Metrics{PromptTokens: c.Input, CompletionTokens: c.Output, CachedTokens: c.Cached, CostUSD: c.Cost}
}

// respond sets the provider's id of the response in message id. The core
// measures the usage of each response, and finds it by this id.
func (b *Transcript) respond(id, response string) {
	if response == "" || len(response) > maxID || b.open == nil || b.id != id {
		return
	}
	b.note("response_id", response)
}

// Stopped says why the model stopped in the open message, in the CLI's or the
// provider's word; nothing happens if there is none. Message does this with its
// Stop.
func (b *Transcript) Stopped(reason string) {
	if reason != "" && len(reason) <= maxID && b.open != nil {
		b.note("stop_reason", reason)
	}
}

// note sets a member of the open step's extra.
func (b *Transcript) note(name, value string) {
	all := map[string]string{}
	if len(b.open.Extra) > 0 && json.Unmarshal(b.open.Extra, &all) != nil {
		return
	}
	all[name] = value
	if raw, err := json.Marshal(all); err == nil {
		b.open.Extra = raw
	}
}

// Note records a step of the user or the system.
func (b *Transcript) Note(source trajectory.Source, text string) {
	b.Flush()
	b.record(trajectory.Step{Timestamp: trajectory.Stamp(time.Now()), Source: source, Message: trajectory.Text(output.Middle(text, maxText))})
}

// Log writes a line for people.
func (b *Transcript) Log(format string, args ...any) {
	if b.rec == nil {
		return
	}
	if err := b.rec.Log(output.Middle(fmt.Sprintf(format, args...), 8<<10)); err != nil && b.err == nil {
		b.err = err
	}
}

// Next ends the open message: what follows is another one, whatever its id.
func (b *Transcript) Next() { b.Flush() }

// Flush records the open step.
func (b *Transcript) Flush() {
	if b.open == nil {
		return
	}
	s := *b.open
	if b.text.some {
		b.said = b.text.String()
		s.Message = trajectory.Text(b.said)
	}
	s.ReasoningContent = b.thought.String()
	b.open, b.pending, b.text, b.thought = nil, 0, &growing{}, &growing{}
	one := int64(1)
	s.LLMCallCount = &one
	b.count++
	b.record(s)
	if b.whole != nil {
		b.whole()
	}
}

func (b *Transcript) record(s trajectory.Step) {
	if b.sub != "" {
		b.steps = append(b.steps, s)
		return
	}
	if b.rec == nil {
		return
	}
	err := b.err
	if err == nil {
		err = b.rec.Step(s)
	}
	if err != nil {
		b.err, b.unsent = err, append(b.unsent, s)
	}
}

// begin begins a turn.
func (b *Transcript) begin(rec agent.Recorder) {
	b.last, b.spentNow = "", agent.Claim{}
	b.resume(rec)
}

// resume records with rec from now on, first the steps that could not be
// recorded before.
func (b *Transcript) resume(rec agent.Recorder) {
	late := b.unsent
	b.rec, b.err, b.unsent = rec, nil, nil
	for _, s := range late {
		b.record(s)
	}
}

// In returns the book of the sub-agent that the call started.
func (b *Transcript) In(call string) *Transcript {
	if call == "" {
		return b
	}
	sub := b.subs[call]
	if sub == nil {
		sub = newTranscript(b.model, b.effort, b.dir)
		sub.sub, sub.rec, sub.agent = call, b.rec, b.agent
		b.subs[call] = sub
	}
	return sub
}

// GoesOn says that the sub-agent of a call continues in the background after the
// result of the call. Ended says when it has ended.
func (b *Transcript) GoesOn(call string) {
	if call != "" {
		b.In(call).goesOn = true
	}
}

// Ended says that the sub-agent of a call has ended.
func (b *Transcript) Ended(call string) {
	if sub := b.subs[call]; sub != nil {
		sub.ended = true
	}
}

// Called records that the sub-agent of a call has ended, as a step of the system
// with a text. It is for an agent whose program calls sub-agents, so that no call of
// the model stands for them. What the sub-agent used counts as used in this turn.
func (b *Transcript) Called(call, text string) {
	if call == "" {
		return
	}
	sub := b.In(call)
	b.Flush()
	b.Used(sub.spentNow)
	b.refer(sub, text)
	delete(b.subs, call)
}

// refer closes the book of a sub-agent and records a step of the system that refers
// to it.
func (b *Transcript) refer(sub *Transcript, text string) {
	ref, ok := sub.reference()
	sub.close()
	step := trajectory.Step{Timestamp: trajectory.Stamp(time.Now()), Source: trajectory.System, Message: trajectory.Text(output.Middle(text, maxText))}
	if ok {
		step.Observation = &trajectory.Observation{Results: []trajectory.Result{{Subagents: []trajectory.SubagentRef{ref}}}}
	}
	b.record(step)
}

// file returns the path of a sub-agent's file, below dir.
func (b *Transcript) file() string { return filepath.Join("subagents", fileName(b.sub)+".json") }

// reference returns a reference to the file of a sub-agent, which close writes.
func (b *Transcript) reference() (trajectory.SubagentRef, bool) {
	return trajectory.SubagentRef{TrajectoryPath: "agent/" + filepath.ToSlash(b.file()), SessionID: b.sub}, b.dir != ""
}

// close writes the file of a sub-agent.
func (b *Transcript) close() {
	b.Flush()
	if b.dir == "" {
		return
	}
	t, _, err := trajectory.New(b.agent, b.sub, b.steps)
	if err == nil {
		var raw []byte
		if raw, err = trajectory.Encode(t); err == nil {
			err = os.MkdirAll(filepath.Join(b.dir, "subagents"), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(b.dir, b.file()), raw, 0o644)
		}
	}
	if err == nil && b.rec != nil {
		err = b.rec.Artifact(b.file())
	}
	if err != nil {
		b.Log("the steps of a sub-agent cannot be kept: %s", err)
	}
}

// end records all open steps at the end of a turn.
func (b *Transcript) end() {
	b.Flush()
	for call, sub := range b.subs {
		if sub.ended || b.dir == "" {
			sub.close()
		} else {
			b.refer(sub, "a sub-agent that did not end")
		}
		delete(b.subs, call)
	}
}

// fileName turns an id of the CLI into a file name.
func fileName(id string) string {
	name := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, id)
	if len(name) > 100 {
		name = name[:100]
	}
	return name
}
