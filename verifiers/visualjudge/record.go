package main

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/untrusted"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Bounds of what is read and shown.
const (
	maxAction  = 2 << 10  // bytes of an action, with its arguments and its error
	maxActions = 20       // actions between two pictures that are shown: the last ones
	maxAnswer  = 64 << 10 // bytes of the agent's answer
)

// say is the action with which an agent tells the user something.
const say = "send_msg_to_user"

// sight is a picture of the record, and what was done since the one before.
type sight struct {
	Frame   surface.Frame
	Step    int64    // of the last action before it; 0: none
	Actions []string // since the picture before it
	First   bool     // after a reset: there is none before it
}

// record is what the judge takes from the record of an attempt.
type record struct {
	sights []sight
	answer string
	unseen int // actions that were done after the last picture
}

// readRecord reads the record of the stage, with the first picture of each line.
func readRecord(r *verifier.Request) (rec record, err error) {
	next := sight{First: true}
	sent := ""
	err = r.AnyLines("attempt/surface.jsonl", func(raw []byte) {
		var l surface.Line
		if json.Unmarshal(raw, &l) != nil || !ofStage(r, l.Stage) {
			return
		}
		switch l.Kind {
		case surface.KindReset:
			next = sight{First: true}
		case surface.KindAct:
			next.Step = max(next.Step, l.Step)
			next.Actions = append(next.Actions, action(&l))
			next.Actions = next.Actions[max(0, len(next.Actions)-maxActions):]
			if l.Error == "" && l.Action != say {
				rec.unseen++
			}
			if text := argument(l.Arguments); l.Action == say && l.Error == "" && text != "" {
				sent = text
			}
		}
		if len(l.Frames) > 0 {
			next.Frame = l.Frames[0]
			rec.sights = append(rec.sights, next)
			next, rec.unseen = sight{Step: next.Step}, 0
		}
	})
	if err != nil {
		return rec, err
	}
	err = r.AnyLines("attempt/turns.jsonl", func(raw []byte) {
		var l struct{ Kind, Stage, Message string }
		if json.Unmarshal(raw, &l) == nil && l.Kind == "yield" && ofStage(r, l.Stage) && strings.TrimSpace(l.Message) != "" {
			rec.answer = l.Message
		}
	})
	if sent != "" {
		rec.answer = sent
	}
	rec.answer = output.First(rec.answer, maxAnswer)
	return rec, err
}

func ofStage(r *verifier.Request, stage string) bool {
	return r.Stage == "" || stage == "" || stage == r.Stage
}

// action returns an action of the record as a line of text.
func action(l *surface.Line) string {
	text := output.First(l.Action+"("+string(l.Arguments)+")", maxAction)
	if l.Error != "" {
		text += ", which failed: " + output.First(l.Error, maxAction)
	}
	return text
}

// argument returns the text that a call sends.
func argument(raw json.RawMessage) string {
	var a struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &a) != nil {
		return ""
	}
	return strings.TrimSpace(a.Text)
}

// picture reads a picture of the record.
func picture(r *verifier.Request, f *surface.Frame) ([]byte, error) {
	if f.File == "" || path.Base(f.File) != f.File {
		return nil, fmt.Errorf("%q is not a name of a picture", output.First(f.File, 200))
	}
	return untrusted.Read(r.View, "attempt/frames/"+f.File, surface.MaxFrame)
}
