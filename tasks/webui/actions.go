package webui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// action is what is done to the page, after what was done before. The surface gets
// it as a setting.
type action struct {
	Name  string `json:"name"`
	Steps []step `json:"steps"`

	line int
}

// element names an element: of those that Selector finds, the one at Index, which
// counts from the end if it is below 0.
type element struct {
	By       string `json:"by,omitempty"` // one of ways; empty: css
	Selector string `json:"selector,omitempty"`
	Index    int    `json:"index,omitempty"`
}

// step is a part of an action.
type step struct {
	Do string `json:"do"` // one of doings
	element
	To      *element  `json:"to,omitempty"`      // of a drag
	Text    string    `json:"text,omitempty"`    // of type
	X       float64   `json:"x,omitempty"`       // of scroll, in CSS pixels
	Y       float64   `json:"y,omitempty"`       // of scroll
	Seconds float64   `json:"seconds,omitempty"` // of wait
	Script  string    `json:"script,omitempty"`  // of script: the body of a function
	On      []element `json:"on,omitempty"`      // of script: its arguments
}

// Words of steps.
const (
	doClick  = "click"
	doHover  = "hover"
	doDrag   = "drag"
	doType   = "type"
	doClear  = "clear"
	doScroll = "scroll" // by X and Y what an element contains, or the page without one; or to an element
	doWait   = "wait"
	doScript = "script"
)

var (
	doings = []string{doClick, doHover, doDrag, doType, doClear, doScroll, doWait, doScript}
	ways   = []string{"css", "id", "class", "tag", "name", "xpath", "link"}
)

// Bounds of actions. A surface has a minute for a page with all of its actions.
const (
	maxActions = 50
	maxSteps   = 100 // of an action
	maxWait    = 30  // seconds of a page
)

// checkActions says what is wrong with actions, from either file.
func (b *builder) checkActions(file string) {
	if len(b.actions) > maxActions {
		b.bad(file, b.actions[maxActions].line, "Too many actions", "There are %d, at most %d are allowed.", len(b.actions), maxActions)
	}
	wait := 0.0
	for i := range b.actions {
		a := &b.actions[i]
		switch {
		case strings.TrimSpace(a.Name) == "":
			b.bad(file, a.line, "Action without a name", "Write a name.")
		case len(a.Steps) == 0 || len(a.Steps) > maxSteps:
			b.bad(file, a.line, "Wrong number of steps", "Action %q has %d steps: 1 to %d are allowed.", a.Name, len(a.Steps), maxSteps)
		}
		for j := range a.Steps {
			if why := a.Steps[j].wrong(); why != "" {
				b.bad(file, a.line, "Step cannot be done", "Step %d of action %q: %s.", j+1, a.Name, why)
			} else {
				wait += a.Steps[j].Seconds
			}
		}
	}
	if wait > maxWait {
		b.bad(file, b.actions[0].line, "The actions wait for too long", "Their waits add up to %g s, at most %d s are allowed. Shorten them.", wait, maxWait)
	}
}

// wrong says what is wrong with a step; empty: nothing.
func (s *step) wrong() string {
	switch {
	case !slices.Contains(doings, s.Do):
		return fmt.Sprintf("do is %q: write one of %s", s.Do, strings.Join(doings, ", "))
	case s.Seconds < 0 || s.Seconds > maxWait || s.Do == doWait && s.Seconds == 0:
		return fmt.Sprintf("seconds is %g: a wait takes more than 0 and at most %d seconds", s.Seconds, maxWait)
	case s.Do == doType && s.Text == "":
		return "text is required: what is typed"
	case s.Do == doScript && s.Script == "":
		return "script is required: the body of a function"
	case s.Do == doDrag && s.To == nil:
		return "to is required: the element onto which it is dragged"
	case s.Selector == "" && s.Do != doWait && s.Do != doScript && (s.Do != doScroll || s.X == 0 && s.Y == 0):
		return "selector is required"
	}
	for _, e := range append([]element{s.element}, s.On...) {
		if why := e.wrong(); why != "" {
			return why
		}
	}
	if s.To != nil {
		if s.To.Selector == "" {
			return "the selector of to is required"
		}
		return s.To.wrong()
	}
	return ""
}

func (e *element) wrong() string {
	if e.By != "" && !slices.Contains(ways, e.By) {
		return fmt.Sprintf("by is %q: write one of %s", e.By, strings.Join(ways, ", "))
	}
	return ""
}

// errShape says what actions.json is.
var errShape = errors.New(`want {"actions": [{"name": …, "steps": […]}, …]} and nothing else`)

// readJSON reads actions.json, an object with the list actions.
func (b *builder) readJSON(text string) {
	var whole any
	if err := json.Unmarshal([]byte(text), &whole); err != nil {
		at := len(text)
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = min(at, int(syntax.Offset))
		}
		b.bad(fileActions, 1+strings.Count(text[:at], "\n"), "Not a list of actions", "%s.", err)
		return
	}
	d := json.NewDecoder(strings.NewReader(text))
	expect := func(all ...json.Token) error {
		for _, want := range all {
			if got, err := d.Token(); err != nil || got != want {
				return errShape
			}
		}
		return nil
	}
	line := func() int { return 1 + strings.Count(text[:min(len(text), int(d.InputOffset()))], "\n") }
	err := expect(json.Delim('{'), "actions", json.Delim('['))
	for err == nil && d.More() {
		at := int(d.InputOffset())
		at += len(text[at:]) - len(strings.TrimLeft(text[at:], ", \t\r\n"))
		a := action{line: 1 + strings.Count(text[:at], "\n")}
		var raw json.RawMessage
		if err = d.Decode(&raw); err != nil {
			break
		}
		strict := json.NewDecoder(bytes.NewReader(raw))
		strict.DisallowUnknownFields()
		if wrong := strict.Decode(&a); wrong != nil {
			b.bad(fileActions, a.line, "Not an action", "%s.", strings.TrimPrefix(wrong.Error(), "json: "))
			continue
		}
		b.actions = append(b.actions, a)
	}
	if err == nil {
		err = expect(json.Delim(']'), json.Delim('}'))
	}
	if err != nil {
		b.bad(fileActions, line(), "Not a list of actions", "%s.", err)
	}
}
