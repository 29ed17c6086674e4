// Package answer reads the answers of model providers, whole or as a stream of
// events, in each dialect. The gateway's meter and the client of our own agents
// share it, so that both see the same answer.
//
// Each member is read on its own. A member of an unknown form counts as absent
// and is named in a note; it never keeps the rest from being read.
//
// It must not do any networking, know a price, or write an answer.
package answer

import (
	"encoding/json"

	"github.com/tidwall/gjson"

	"github.com/berth-eval/berth/plugins/model"
)

// Piece is what a whole answer says, or one event of a stream.
type Piece struct {
	ID       string // the provider's own id of the answer; empty: it has none
	Model    string // the provider's name for the model
	Text     string
	Last     string // text of the last message, if there are several
	Thinking string // as far as the provider shows it
	Calls    []Call
	Called   bool // it calls a tool of the client, also one that Calls does not have
	Stop     Stop
	Reason   string // why it ended, in the provider's word; empty: not in it
	Error    string // the provider's error; empty: none
	// Message reports whether a reply of the model is in it, which may be empty.
	Message bool
	End     bool     // the answer reached its regular end
	Said    int64    // bytes of text, thought and arguments, of all replies in it
	Notes   []string // what was not read, because its form is unknown
	Usage   Usage
}

// Call is a tool call of the model.
type Call struct {
	ID, Name string // the id is empty if the provider gave none
	// Arguments is an object, or what the model wrote if that is not one.
	Arguments json.RawMessage
	Signature string // a value that some providers need back with the call
}

// Stop is why a reply ended.
type Stop int

// The reasons. Any other reason of a provider is Done.
const (
	Done    Stop = iota
	Length       // cut off at a limit
	Refused      // the model or a filter refused to answer
)

// formats read an answer, or an event, in a dialect.
var formats = map[model.Dialect]func(*reader, gjson.Result){
	model.DialectOpenAIChat: (*reader).openAIChat, model.DialectScript: (*reader).openAIChat, model.DialectOpenAI: (*reader).openAI,
	model.DialectAnthropic: (*reader).anthropic, model.DialectGemini: (*reader).gemini,
}

// Read reads a whole answer. It returns false if the answer is not a JSON object.
func Read(d model.Dialect, body []byte) (Piece, bool) {
	v, ok := parse(body)
	if !ok || !v.IsObject() {
		return Piece{}, false
	}
	return read(d, v), true
}

// Problem returns the error in the body of a refusal; empty if it has none.
func Problem(body []byte) string {
	v, _ := parse(body)
	r := &reader{}
	r.problem(v.Get("error"))
	if r.p.Error == "" && v.IsObject() {
		r.problem(v)
	}
	return r.p.Error
}

func parse(body []byte) (gjson.Result, bool) {
	if !json.Valid(body) {
		return gjson.Result{}, false
	}
	return gjson.ParseBytes(body), true
}

func read(d model.Dialect, v gjson.Result) Piece {
	r := &reader{first: true, exclusive: d == model.DialectAnthropic}
	r.p.ID, r.p.Model = word(v.Get("id")), word(v.Get("model"))
	r.problem(v.Get("error"))
	if word(v.Get("object")) == "error" || word(v.Get("type")) == "error" { // the answer itself is the error
		r.problem(v)
	}
	r.usages("", v, 2)
	formats[d](r, v)
	p := &r.p
	p.Text, p.Thinking = r.text.String(), r.thinking.String()
	p.Last = p.Text[r.last:]
	p.apart()
	if d == model.DialectGemini && p.Usage.n[input] != nil && p.Usage.n[output] == nil { // it leaves out a zero
		p.Usage.n[output] = new(int64)
	}
	p.Message = p.Message && (!r.unread || p.Text != "" || len(p.Calls) > 0)
	return *p
}
