package config

import (
	"encoding/json"
	"strings"
)

// Problem is one problem in a configuration. Path says where. The host turns it
// into file, line and column, which a plugin never sees.
type Problem struct {
	Path    Path   `json:"path"`
	Summary string `json:"summary"` // what is wrong, without a full stop
	Detail  string `json:"detail"`  // the given value, the allowed values, how to fix it
}

// String returns the problem on one line, for errors and tests.
func (p Problem) String() string {
	s := p.Path.String() + ": " + p.Summary
	if p.Detail != "" {
		s += ": " + p.Detail
	}
	return s
}

// Problems are the problems of one configuration, as an error.
type Problems []Problem

// Error lists every problem, one per line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Validator is a configuration that can check its own values. Validate has no
// side effects, opens nothing, and reports every problem, not only the first.
type Validator interface {
	Validate() []Problem
}

// Validate decodes raw into the struct that into points to, as [Decode] does,
// and then calls its Validate if it is a [Validator]. A plugin answers a
// Validate request with the result. No problems means that the configuration is
// valid.
func Validate(raw json.RawMessage, into any) []Problem {
	if ps := decode(raw, into); len(ps) > 0 {
		return ps
	}
	if v, ok := into.(Validator); ok {
		return v.Validate()
	}
	return nil
}
