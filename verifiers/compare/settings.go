package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/config"
)

// Inputs are the settings of every comparator. A task sets them, and the config
// block of an experiment replaces what it names.
type Inputs struct {
	Truth      json.RawMessage `berth:"truth" doc:"The ground truth: a path in the verifier's view, such as references/truth.json, or the JSON object or list itself."`
	Prediction string          `berth:"prediction" default:"answer" doc:"What is compared: answer, which is what the agent told the user last, or the path of a file below attempt/ in the verifier's view, or of a folder with one file."`
}

func (i *Inputs) inputs() *Inputs { return i }

// FieldsConfig are the settings of compare-fields.
type FieldsConfig struct {
	Inputs
	RelativeTolerance   *float64           `berth:"relative_tolerance" doc:"Largest difference of numbers, as a share of the expected number. Commas in numbers are removed first. Absent: numbers are equal as text."`
	ToleranceFields     map[string]float64 `berth:"tolerance_fields" doc:"Largest difference of plain numbers without a unit, for each field that has one."`
	UnorderedObjectKeys []string           `berth:"unordered_object_keys" doc:"Fields whose objects may be in any order: the objects of a list, or those under the fields themselves."`
	TimeMinutes         float64            `berth:"time_minutes" default:"1" doc:"How many minutes a time of day may differ, in fields whose expected value is HH:MM or HH:MM:SS, with or without UTC. -1: it is compared as text."`
}

// TimelineConfig are the settings of compare-timeline.
type TimelineConfig struct {
	Inputs
	TimeMs    float64 `berth:"time_ms" default:"1000" doc:"How many milliseconds the times of an element or an effect may differ."`
	OverlapMs float64 `berth:"overlap_ms" default:"500" doc:"A text has to be on the expected track if a video overlaps it by more than this, in milliseconds."`
	LightMs   float64 `berth:"light_ms" default:"4000" doc:"How long the light effect of scenario 14 is, in milliseconds."`
	FadeMs    float64 `berth:"fade_ms" default:"3000" doc:"How long the fade at the end of a clip is in scenarios 11 and 14, in milliseconds. 0: in scenario 14 it may be anywhere."`
	LightClip string  `berth:"light_clip" default:"" doc:"Name of the clip with the light effect. Empty: any video clip; in scenario 14 the effect begins with the timeline."`
	FadeClip  string  `berth:"fade_clip" default:"" doc:"Name of the clip with the fade. Empty: any video clip."`
	Effects   string  `berth:"effects" default:"scenario" enum:"scenario,strict" doc:"scenario: effects are checked in the scenarios that have rules for them. strict: the effects must also be those of the ground truth, in every scenario."`
}

// GraphConfig are the settings of compare-graph.
type GraphConfig struct {
	Inputs
	Matching string `berth:"matching" default:"greedy" enum:"greedy,optimal" doc:"How nodes are paired. greedy: the pair with the fewest differences first. optimal: with the fewest differences in all, and equal nodes so that their edges agree; for at most 200 nodes."`
}

// SceneConfig are the settings of compare-scene.
type SceneConfig struct {
	Inputs
	Tolerance     float64 `berth:"tolerance" default:"0.15" doc:"How much position, rotation (in radians), scale and opacity may differ."`
	ViewTolerance float64 `berth:"view_tolerance" default:"0.01" doc:"How much fov and orthoZoom may differ."`
	Opacity       string  `berth:"opacity" default:"tolerance" enum:"tolerance,exact" doc:"tolerance: opacity may differ like other numbers of an object. exact: it may not differ."`
}

// CircuitConfig are the settings of compare-circuit.
type CircuitConfig struct {
	Inputs
	RelativeTolerance float64  `berth:"relative_tolerance" default:"0.05" doc:"Largest difference of numbers, as a share of the expected number, if the ground truth is not a circuit but has fields."`
	DontCare          []string `berth:"dont_care" doc:"Rows of the truth table that do not count: the values of the inputs of the ground truth, in the order of its parts, such as 110 or 1x1, where x is both."`
}

// Validate implements config.Validator.
func (c *FieldsConfig) Validate() (ps []config.Problem) {
	if c.RelativeTolerance != nil {
		ps = notNegative(ps, "relative_tolerance", *c.RelativeTolerance)
	}
	for key, t := range c.ToleranceFields {
		ps = notNegative(ps, config.Path("tolerance_fields").Key(key), t)
	}
	return ps
}

// Validate implements config.Validator.
func (c *TimelineConfig) Validate() (ps []config.Problem) {
	ps = notNegative(ps, "time_ms", c.TimeMs)
	ps = notNegative(ps, "overlap_ms", c.OverlapMs)
	ps = notNegative(ps, "light_ms", c.LightMs)
	return notNegative(ps, "fade_ms", c.FadeMs)
}

// Validate implements config.Validator.
func (c *SceneConfig) Validate() (ps []config.Problem) {
	return notNegative(notNegative(ps, "tolerance", c.Tolerance), "view_tolerance", c.ViewTolerance)
}

// Validate implements config.Validator.
func (c *CircuitConfig) Validate() (ps []config.Problem) {
	return notNegative(ps, "relative_tolerance", c.RelativeTolerance)
}

func notNegative(ps []config.Problem, path config.Path, value float64) []config.Problem {
	if value >= 0 {
		return ps
	}
	return append(ps, config.Problem{Path: path, Summary: "A tolerance is negative", Detail: fmt.Sprintf("Got %g. Write a number from 0 on.", value)})
}

// read reads the settings of the task, and of the experiment over them. Both are
// read strictly, because they decide what a result is.
func read(of plugins.Settings, into any) []config.Problem {
	raw, err := merged(of)
	if err != nil {
		return []config.Problem{{Summary: "Not an object", Detail: err.Error()}}
	}
	if ps := config.Validate(raw, into); len(ps) > 0 {
		return ps
	}
	has, ok := into.(interface{ inputs() *Inputs })
	if !ok {
		return []config.Problem{{Summary: "Bug in the plugin", Detail: fmt.Sprintf("%T has no inputs", into)}}
	}
	return has.inputs().problems()
}

// merged returns the settings of the task, and of the experiment over them. If an
// experiment replaces another verifier by this one, the settings of the task are for
// the other one: they name no ground truth, and are not read.
func merged(of plugins.Settings) (json.RawMessage, error) {
	task, err := config.Members(of.JSON)
	if err != nil {
		return nil, fmt.Errorf("settings of the task: %w", err)
	}
	experiment, err := config.Members(of.Config)
	if err != nil {
		return nil, fmt.Errorf("config of the experiment: %w", err)
	}
	if task["truth"] == nil && experiment["truth"] != nil {
		return of.Config, nil
	}
	return config.Over(of.JSON, of.Config)
}

// problems returns what is wrong with them without looking at any file.
func (i *Inputs) problems() (ps []config.Problem) {
	add := func(path config.Path, summary, format string, args ...any) {
		ps = append(ps, config.Problem{Path: path, Summary: summary, Detail: fmt.Sprintf(format, args...)})
	}
	switch name, written := i.file(); {
	case len(bytes.TrimSpace(i.Truth)) == 0:
		add("truth", "truth is required", "Write the path of the ground truth in the view, or the JSON itself.")
	case written:
	case ofAttempt(path.Clean(name)) || path.IsAbs(name) || strings.HasPrefix(path.Clean(name), ".."):
		add("truth", "truth is no file of the task", "Got %q. It must be a file of the task, such as references/truth.json, and none of the attempt.", name)
	}
	if i.Prediction != "answer" && !strings.HasPrefix(path.Clean(i.Prediction), "attempt/") {
		add("prediction", "prediction is neither answer nor a file of the attempt", "Got %q. Write answer, or the path of a file below attempt/.", i.Prediction)
	}
	return ps
}

func ofAttempt(clean string) bool { return clean == "attempt" || strings.HasPrefix(clean, "attempt/") }

// file returns the name of the file with the ground truth. written says that the
// settings hold the ground truth itself.
func (i *Inputs) file() (name string, written bool) {
	return name, json.Unmarshal(i.Truth, &name) != nil
}
