package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/berth-eval/berth/environments/internal/page"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/surface"
)

// Config is the block surface_config of an experiment.
type Config struct {
	Program       string        `berth:"program" default:"chromium" doc:"Chromium in the sandbox: a name in its PATH, or a path."`
	Width         int           `berth:"width" default:"1280" doc:"Width of the viewport in CSS pixels."`
	Height        int           `berth:"height" default:"720" doc:"Height of the viewport in CSS pixels."`
	SlowMo        time.Duration `berth:"slow_mo" default:"1s" doc:"Wait after each action."`
	ActionTimeout time.Duration `berth:"action_timeout" default:"5s" doc:"How long an action waits until its element can be acted on."`
	Settle        time.Duration `berth:"settle" default:"500ms" doc:"Wait before each observation."`
	Load          time.Duration `berth:"load" default:"3s" doc:"How long to wait for the content of a page and of its frames."`
}

// settings are what a task says about the browser.
type settings struct {
	URL          string        `berth:"url" default:"" doc:"Page to open. A path is one of the task's pages. Empty: the level, or the first page."`
	Pages        string        `berth:"pages" default:"" doc:"Folder of the task's files with the pages. Empty: their only folder, or all of them."`
	InitialDelay time.Duration `berth:"initial_delay" default:"0s" doc:"Wait after the first page was opened."`
	EndOnMessage bool          `berth:"end_on_message" default:"false" doc:"The episode is over when the agent has sent a message to the user, or has said that the task cannot be done."`
}

// The kinds of captures.
const (
	captureURL        = "url"
	captureScript     = "script"
	captureScreenshot = "screenshot"
)

// capture is what a task says about a capture.
type capture struct {
	Kind   string `berth:"kind" required:"true" enum:"url,script,screenshot" doc:"url: visits URL and keeps the text. script: evaluates Script and keeps its value as JSON. screenshot: a PNG. The last two are of a page of the application, with the origin of the page that the task opens: the active one, or the newest, or that page again."`
	URL    string `berth:"url" default:"" doc:"Page to visit; a path is one of the task's pages."`
	Script string `berth:"script" default:"" doc:"JavaScript to evaluate in a page of the application."`
}

// check implements plugins.Info.Settings.
func check(of plugins.Settings) []config.Problem {
	if of.Capture != "" {
		return config.Validate(of.JSON, &capture{})
	}
	return config.Validate(of.JSON, &settings{})
}

// Validate implements config.Validator.
func (c *capture) Validate() (ps []config.Problem) {
	if c.Kind == captureScript && c.Script == "" {
		ps = append(ps, config.Problem{Path: "script", Summary: `"script" is required`, Detail: "Write what to evaluate: the kind is script."})
	}
	return ps
}

// The sizes of a viewport.
const (
	minSide = 100
	maxSide = 4096
)

// problems returns what is wrong in a configuration and the task's settings.
func problems(c *Config, s *settings) (list []string) {
	if c.Width < minSide || c.Width > maxSide || c.Height < minSide || c.Height > maxSide {
		list = append(list, fmt.Sprintf("The viewport of %d × %d is too small or too large: choose width and height from %d to %d.", c.Width, c.Height, minSide, maxSide))
	}
	if d := s.InitialDelay; d < 0 || d > surface.MaxReset {
		list = append(list, fmt.Sprintf("The initial delay %s is out of range: choose 0s to %s.", d, surface.MaxReset))
	}
	if s.Pages != "" && strings.Contains("/"+s.Pages+"/", "/../") {
		list = append(list, fmt.Sprintf("The folder of pages %q leaves the files of the task.", s.Pages))
	}
	return list
}

// at returns the URL of a page; a path is one of the task's pages.
func at(url string) string {
	if strings.Contains(url, "://") || strings.HasPrefix(url, "about:") || strings.HasPrefix(url, "data:") {
		return url
	}
	return page.Origin + "/" + strings.TrimPrefix(url, "/")
}
