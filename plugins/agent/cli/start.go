package cli

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
)

// Run is what one start of the CLI is made from.
type Run struct {
	Settings *Settings
	Model    model.Endpoint // the cell's model; its Name is never empty
	URL      string         // of the model, inside the sandbox, without a path
	Message  string         // of the user, never a command of the CLI; the first with what the CLI has no knob for
	Turn     int            // 1…
	Session  string         // what the CLI called its session in the turns before; empty at first
	Workdir  string         // where it starts
	Shell    string         // a bash: the image's, or else the bundle's; empty: neither
	Direct   string         // what is reached without a proxy, as in NO_PROXY
	Servers  []agent.Server // MCP servers of the task and of the settings
	Skills   []string       // folders of skills in the sandbox, each with its SKILL.md
}

// BaseURL is the model's address as the libraries for its dialect want it: with
// /v1 for those of OpenAI.
func (r *Run) BaseURL() string {
	if r.Model.Dialect == model.DialectOpenAI || r.Model.Dialect == model.DialectOpenAIChat {
		return r.URL + "/v1"
	}
	return r.URL
}

// MaxTurns is the limit as an argument; empty without one.
func (r *Run) MaxTurns() string {
	if r.Settings.MaxTurns == 0 {
		return ""
	}
	return strconv.FormatInt(r.Settings.MaxTurns, 10)
}

// SkillLinks are links to the skills in the folder where a CLI looks for them,
// below Home.
func (r *Run) SkillLinks(dir string) (files []File) {
	for _, k := range r.Skills {
		files = append(files, File{Path: path.Join(dir, path.Base(k)), Link: k})
	}
	return files
}

// Start is how a CLI is started.
type Start struct {
	Argv  []string
	Env   map[string]string // beside what the helper sets: see session.go
	Files []File            // below Home, made before it starts
	Stdin string

	err error // of a file
}

// File is a file below Home, or a link.
type File struct {
	Path string // relative to Home
	Data string
	Link string // absolute path in the sandbox; Data is not used then
}

// Options adds options with their values to Argv: a name, a value, a name… One
// whose value is empty is left out.
func (s *Start) Options(pairs ...string) {
	for pair := range slices.Chunk(pairs, 2) {
		if len(pair) == 2 && pair[1] != "" {
			s.Argv = append(s.Argv, pair...)
		}
	}
}

// Text adds a file below Home, unless it is empty, and returns its path in the
// sandbox, or nothing.
func (s *Start) Text(name, text string) string {
	if text == "" {
		return ""
	}
	s.Files = append(s.Files, File{Path: name, Data: text})
	return path.Join(Home, name)
}

// JSON adds a file below Home, and returns its path in the sandbox. What cannot
// be written as JSON is an error of the turn.
func (s *Start) JSON(name string, v any) string {
	return s.Text(name, s.Marshal(v))
}

// Marshal is v as JSON, for a variable or an argument. What cannot be written so
// is an error of the turn.
func (s *Start) Marshal(v any) string {
	raw, err := json.Marshal(v)
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("%w: a setting cannot be written as JSON: %w", agent.ErrBadConfig, err)
	}
	return string(raw)
}
