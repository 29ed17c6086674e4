package gauntlet

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/task"
)

// The kinds of captures.
const (
	captureURL    = "url"
	captureScript = "script"
	captureNone   = "none"
)

// The kinds of observation that the benchmark gives agents, as surfaces name them.
const (
	seesScreenshot = "screenshot"
	seesTree       = "axtree"
)

// application is one of those that tasks are about.
type application struct {
	ids        string // the middle of its tasks' ids
	name       string // of its block, and the category of its tasks
	comparator string
	settings   []string // of the comparator, that eval_config may have
	free       bool     // eval_config may have any others, too
	assets     string   // folder of its ground truths; empty: they are in the lists
	byNumber   bool     // they are named for the number of the task, not its id
	tolerances bool     // tolerances of single tasks stand beside them
	capture    Capture
	observes   []string
	delay      time.Duration
	of         func(*Config) *App
}

// circuitScript is how CircuitJS exports what is drawn.
const circuitScript = "CircuitJS1.exportCircuit()"

// applications are all of them, as the benchmark's program uses them.
var applications = []application{
	{
		ids: "graph", name: "workflow", comparator: "compare-graph",
		assets: "assets/graph_ground_truth", byNumber: true, capture: Capture{Kind: captureURL, URL: "/export"},
		observes: []string{seesScreenshot, seesTree}, delay: 10 * time.Second, of: func(c *Config) *App { return c.Workflow },
	},
	{
		ids: "3d", name: "scene", comparator: "compare-scene", settings: []string{"tolerance"},
		assets: "assets/3d_ground_truth", byNumber: true, tolerances: true, capture: Capture{Kind: captureURL, URL: "/export-clear"},
		observes: []string{seesScreenshot}, delay: 10 * time.Second, of: func(c *Config) *App { return c.Scene },
	},
	{
		ids: "vid", name: "video", comparator: "compare-timeline",
		settings: []string{"time_ms"},
		assets:   "assets/video_ground_truth", capture: Capture{Kind: captureURL, URL: "/finish"},
		observes: []string{seesScreenshot, seesTree}, delay: 10 * time.Second, of: func(c *Config) *App { return c.Video },
	},
	{
		ids: "circuit", name: "circuit", comparator: "compare-circuit", settings: []string{"relative_tolerance"},
		capture:  Capture{Kind: captureScript, Script: circuitScript},
		observes: []string{seesScreenshot}, delay: 10 * time.Second, of: func(c *Config) *App { return c.Circuit },
	},
	{
		ids: "frad", name: "flight", comparator: compareFields,
		settings: []string{"relative_tolerance", "tolerance_fields", "unordered_object_keys", "time_minutes"},
		capture:  Capture{Kind: captureNone},
		observes: []string{seesScreenshot}, delay: 330 * time.Second, of: func(c *Config) *App { return c.Flight },
	},
}

// compareFields compares what an agent says.
const compareFields = "compare-fields"

// tolerancesFile has the tolerances of single tasks, by their numbers.
const tolerancesFile = "tolerance_overrides.json"

// application returns the application of ids with this middle, and where it is;
// nil: there is none.
func (c *Config) application(ids string) (*application, *App) {
	for i := range applications {
		if a := &applications[i]; a.ids == ids {
			return a, a.of(c)
		}
	}
	own, ok := c.Applications[ids]
	if !ok {
		return nil, nil
	}
	a := &application{
		ids: ids, name: ids, comparator: own.Verifier, assets: own.Assets, capture: Capture{Kind: captureNone},
		observes: []string{seesScreenshot}, delay: 10 * time.Second, free: true,
	}
	for i := range applications {
		if applications[i].comparator == own.Verifier {
			a.settings, a.free = applications[i].settings, false
		}
	}
	return a, &own.App
}

// page is what the browser opens, and may reach.
type page struct {
	url     string // a path with pages
	network task.Network
	problem string // why there is none; empty: there is one
}

// pageOf returns the page of a task. website is what the task itself says.
func (a *application) pageOf(app *App, website string) (p page) {
	p.network.Mode = task.NetworkNone
	if app.Pages != "" {
		if p.url = app.URL; p.url == "" || strings.HasPrefix(website, "/") {
			p.url = website
		}
		if strings.Contains(p.url, "://") {
			p.problem = "It is " + p.url + ", but pages of the application are set: write a path of these pages."
		}
		return p
	}
	p.url = app.URL
	switch base, err := url.Parse(app.URL); {
	case app.URL == "":
		p.url = website
	case err == nil && strings.HasPrefix(website, "/"):
		if at, err := base.Parse(website); err == nil {
			p.url = at.String()
		}
	}
	u, err := url.Parse(p.url)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		p.problem = "The task has none, or only a path. In the config block of the dataset, set url or pages in " + a.block() + "."
		return p
	}
	if slices.Contains(app.Hosts, "*") {
		p.network.Mode = task.NetworkPublic
		return p
	}
	p.network.Mode = task.NetworkAllow
	for _, host := range append([]string{u.Hostname()}, app.Hosts...) {
		if !slices.Contains(p.network.Allow, host) {
			p.network.Allow = append(p.network.Allow, host)
		}
	}
	return p
}

// block names the block of the application in the settings of a dataset.
func (a *application) block() string {
	if a.of == nil {
		return fmt.Sprintf("the block application %q", a.ids)
	}
	return "the block " + a.name
}

// captured is a capture as the surface takes it.
func (a *application) captured(app *App, at page) Capture {
	c := a.capture
	if app.Capture != nil {
		c = *app.Capture
	}
	if base, err := url.Parse(at.url); c.Kind == captureURL && app.Pages == "" && err == nil {
		if u, err := base.Parse(c.URL); err == nil {
			c.URL = u.String()
		}
	}
	return c
}
