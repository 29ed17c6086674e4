package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/berth-eval/berth/environments/internal/page"
	"github.com/berth-eval/berth/environments/internal/surfaces"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/fault"
)

// Config is the block surface_config of an experiment.
type Config struct {
	Program       string        `berth:"program" default:"chromium" doc:"Chromium in the sandbox: a name in its PATH, or a path."`
	Width         int           `berth:"width" default:"1920" doc:"Width of the viewport in CSS pixels."`
	Height        int           `berth:"height" default:"1080" doc:"Height of the viewport in CSS pixels."`
	Settle        time.Duration `berth:"settle" default:"300ms" doc:"Wait after the page was loaded, and after each of its actions."`
	Load          time.Duration `berth:"load" default:"10s" doc:"How long to wait until the page and its pictures are loaded."`
	ActionTimeout time.Duration `berth:"action_timeout" default:"1s" doc:"How long an action of the page waits until its element can be acted on."`
}

// settings are what a task says.
type settings struct {
	Page    string   `json:"page"` // folder of the task's files with the target; empty: there is none
	Actions []action `json:"actions"`
	// Start are folders of the task's files that the agent begins with, one for each
	// repetition, in turn; an empty name is nothing. Without any it begins with nothing.
	Start []string `json:"start,omitempty"`
	Keep  bool     `json:"keep,omitempty"` // what is written stays in later stages
}

// action is what is done to the page, after what was done before.
type action struct {
	Name  string `json:"name"`
	Steps []step `json:"steps"`
}

// element names an element, see page.Target. An empty By is css.
type element struct {
	By       string `json:"by,omitempty"`
	Selector string `json:"selector,omitempty"`
	Index    int    `json:"index,omitempty"`
}

// step is a part of an action.
type step struct {
	Do string `json:"do"` // click, hover, drag, type, clear, scroll, wait or script
	element
	To      element   `json:"to"`                // of a drag
	Text    string    `json:"text,omitempty"`    // of type
	X       float64   `json:"x,omitempty"`       // of scroll, in CSS pixels
	Y       float64   `json:"y,omitempty"`       // of scroll
	Seconds float64   `json:"seconds,omitempty"` // of wait
	Script  string    `json:"script,omitempty"`  // of script
	On      []element `json:"on,omitempty"`      // of script: its arguments
}

// Bounds of what a task says.
const (
	minSide    = 100
	maxSide    = 4096
	maxActions = 50
	maxSettle  = 5 * time.Second
	maxLoad    = 15 * time.Second
)

// read decodes the experiment's block and the settings of a task.
func read(block, task json.RawMessage, c *Config, s *settings) error {
	if err := surfaces.Read(block, c); err != nil {
		return err
	}
	if len(task) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(task))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return fmt.Errorf("%w: settings of the task: %w", fault.ErrBadConfig, err)
	}
	return nil
}

// check implements plugins.Info.Settings.
func check(of plugins.Settings) (ps []config.Problem) {
	var c Config
	var s settings
	switch of.Capture {
	case "":
		err := read(of.Config, of.JSON, &c, &s)
		if err != nil {
			return []config.Problem{{Summary: "Settings cannot be read", Detail: err.Error()}}
		}
		for _, text := range problems(&c, &s) {
			ps = append(ps, config.Problem{Summary: "Settings cannot be used", Detail: text})
		}
		return ps
	case captureTarget, captureResult:
		return config.Schema{}.Problems(of.JSON)
	default:
		return []config.Problem{{Summary: "No such capture", Detail: fmt.Sprintf("Got %q. There are %s and %s.", of.Capture, captureTarget, captureResult)}}
	}
}

// problems returns what is wrong in a configuration and the task's settings.
func problems(c *Config, s *settings) (list []string) {
	if c.Width < minSide || c.Width > maxSide || c.Height < minSide || c.Height > maxSide {
		list = append(list, fmt.Sprintf("The viewport of %d × %d is too small or too large: choose width and height from %d to %d.", c.Width, c.Height, minSide, maxSide))
	}
	if c.Settle < 0 || c.Settle > maxSettle || c.Load <= 0 || c.Load > maxLoad || c.ActionTimeout < 0 || c.ActionTimeout > maxSettle {
		list = append(list, fmt.Sprintf("A wait is out of range: settle and action_timeout have at most %s, and load has more than 0 and at most %s.", maxSettle, maxLoad))
	}
	if len(s.Actions) > maxActions {
		list = append(list, fmt.Sprintf("The task has %d actions of the page, at most %d are allowed.", len(s.Actions), maxActions))
	}
	if s.Page != "" && !filepath.IsLocal(s.Page) {
		list = append(list, fmt.Sprintf("The folder of the page %q leaves the files of the task.", s.Page))
	}
	for _, name := range s.Start {
		if name != "" && !filepath.IsLocal(name) {
			list = append(list, fmt.Sprintf("The folder to start from %q leaves the files of the task.", name))
		}
	}
	return list
}

func (e element) target() page.Target {
	if e.By == "" {
		e.By = page.ByCSS
	}
	return page.Target{By: e.By, Selector: e.Selector, Index: e.Index}
}

// errStep means that the format of the task has made a step that is not known.
var errStep = errors.New("there is no such step")
