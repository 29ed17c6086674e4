package task

import (
	"encoding/json"
	"fmt"
)

// Setting is what a task sets for one plugin: for a verifier, or for the surface of
// its environment.
type Setting struct {
	Key      string          // where the task has it, such as "stages[0].verifiers[1].settings"
	Verifier string          // name of the verifier; empty: it is for the surface
	Capture  string          // name of the capture that it is for; empty: for none
	JSON     json.RawMessage // an object; empty: the task sets nothing
}

// Settings returns what the task sets for plugins, in the order of its fields.
func (t *Task) Settings() (list []Setting) {
	if t.HasSurface() {
		list = append(list, Setting{Key: "environment.settings", JSON: t.Environment.Settings})
	}
	for i := range t.Stages {
		s := &t.Stages[i]
		for j, u := range s.Verifiers {
			list = append(list, Setting{Key: fmt.Sprintf("stages[%d].verifiers[%d].settings", i, j), Verifier: u.Name, JSON: u.Settings})
		}
		for j, c := range s.Captures {
			list = append(list, Setting{Key: fmt.Sprintf("stages[%d].captures[%d].settings", i, j), Capture: c.Name, JSON: c.Settings})
		}
	}
	return list
}

// Locator is optional: a Format that implements it knows where its files have a
// setting of a task.
type Locator interface {
	// Locate returns the problem with its place: File, Line and Column of the setting
	// that its Key names, or of what is around it, and the Key as the file has it. A
	// problem stays as it is if its place is not known.
	Locate(t *Task, p Problem) Problem
}

// Located returns a problem of a task with its place, if the format knows it.
func Located(f Format, t *Task, p Problem) Problem {
	if l, ok := f.(Locator); ok {
		return l.Locate(t, p)
	}
	return p
}
