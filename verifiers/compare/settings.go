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
	TimeMs float64 `berth:"time_ms" default:"1000" doc:"How many milliseconds the times of an element or an effect may differ."`
}

// SceneConfig are the settings of compare-scene.
type SceneConfig struct {
	Inputs
	Tolerance float64 `berth:"tolerance" default:"0.15" doc:"How much position, rotation (in radians), scale and opacity may differ."`
}

// CircuitConfig are the settings of compare-circuit.
type CircuitConfig struct {
	Inputs
	RelativeTolerance float64 `berth:"relative_tolerance" default:"0.05" doc:"Largest difference of numbers, as a share of the expected number, if the ground truth is not a circuit but has fields."`
}

// Validate implements config.Validator.
func (c *FieldsConfig) Validate() (ps []config.Problem) {
	if c.RelativeTolerance != nil {
		ps = config.NotNegative("relative_tolerance", *c.RelativeTolerance)
	}
	for key, t := range c.ToleranceFields {
		ps = append(ps, config.NotNegative(config.Path("tolerance_fields").Key(key), t)...)
	}
	return ps
}

// Validate implements config.Validator.
func (c *TimelineConfig) Validate() []config.Problem { return config.NotNegative("time_ms", c.TimeMs) }

// Validate implements config.Validator.
func (c *SceneConfig) Validate() []config.Problem {
	return config.NotNegative("tolerance", c.Tolerance)
}

// Validate implements config.Validator.
func (c *CircuitConfig) Validate() []config.Problem {
	return config.NotNegative("relative_tolerance", c.RelativeTolerance)
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
