package cli

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// Run is the input of Scaffold.Start.
type Run struct {
	Settings *Settings
	Model    model.Endpoint         // the cell's model; its Name is never empty
	URL      string                 // of the model, inside the sandbox, without a path
	Message  string                 // of the user, never a command of the CLI; the first one includes settings that the CLI has no option for
	Turn     int                    // 1…
	Time     time.Duration          // after which the turn is cut off; 0: not known
	Session  string                 // the CLI's id of the session from earlier turns; empty at first
	Workdir  string                 // where it starts
	Shell    string                 // path of bash in the image, or else in the bundle; empty: neither
	Direct   string                 // hosts reached without a proxy, as in NO_PROXY
	Servers  []agent.Server         // MCP servers of the task and of the settings
	Prior    *trajectory.Trajectory // what the first message continues from; nil: nothing, or Scaffold.Prior is not set
	Skills   []string               // folders of skills in the sandbox, each with its SKILL.md
}

// BaseURL returns the model's address in the form that client libraries of its
// dialect expect: with /v1 for those of OpenAI.
func (r *Run) BaseURL() string {
	if r.Model.Dialect == model.DialectOpenAI || r.Model.Dialect == model.DialectOpenAIChat {
		return r.URL + "/v1"
	}
	return r.URL
}

// MaxTurns returns the limit as an argument; empty without one.
func (r *Run) MaxTurns() string {
	if r.Settings.MaxTurns == 0 {
		return ""
	}
	return strconv.FormatInt(r.Settings.MaxTurns, 10)
}

// SkillLinks returns links to the skills in dir, the folder below Home where a
// CLI looks for them.
func (r *Run) SkillLinks(dir string) (files []File) {
	for _, k := range r.Skills {
		files = append(files, File{Path: path.Join(dir, path.Base(k)), Link: k})
	}
	return files
}

// Start says how to start a CLI.
type Start struct {
	Argv  []string
	Env   map[string]string // in addition to what this package sets: see session.go
	Files []File            // below Home, written before the CLI starts
	Stdin string

	err error // of a file
}

// File is a file below Home, or a link.
type File struct {
	Path string // relative to Home
	Data string
	Link string // absolute path in the sandbox; Data is not used then
}

// Options adds pairs of an option and its value to Argv. It leaves out options
// with an empty value.
func (s *Start) Options(pairs ...string) {
	for pair := range slices.Chunk(pairs, 2) {
		if len(pair) == 2 && pair[1] != "" {
			s.Argv = append(s.Argv, pair...)
		}
	}
}

// Text adds a file below Home and returns its path in the sandbox. Without text
// it adds nothing and returns an empty path.
func (s *Start) Text(name, text string) string {
	if text == "" {
		return ""
	}
	s.Files = append(s.Files, File{Path: name, Data: text})
	return path.Join(Home, name)
}

// JSON adds a file below Home and returns its path in the sandbox. If v cannot
// be written as JSON, the turn fails.
func (s *Start) JSON(name string, v any) string {
	return s.Text(name, s.Marshal(v))
}

// Marshal returns v as JSON, for a variable or an argument. If v cannot be
// written as JSON, the turn fails.
func (s *Start) Marshal(v any) string {
	raw, err := json.Marshal(v)
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("%w: a setting cannot be written as JSON: %w", agent.ErrBadConfig, err)
	}
	return string(raw)
}
