package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Path is a place in a configuration, as text that any language can write:
// names separated by dots, list elements and repeated blocks by number from 0,
// map keys and labeled blocks as JSON strings.
//
//	timeout
//	mount[1].source
//	env["PATH"]
//	server["search"].args[0]
//
// The empty path is the configuration as a whole.
type Path string

// Step is one part of a [Path]: a name, an index or a key.
type Step struct {
	Kind  StepKind
	Name  string // for StepName and StepKey
	Index int    // for StepIndex, from 0
}

// StepKind says which field of a [Step] is set.
type StepKind int

// The kinds of steps.
const (
	StepName  StepKind = iota + 1 // .name
	StepIndex                     // [1]
	StepKey                       // ["key"]
)

// Attr returns the path of an attribute or block below p.
func (p Path) Attr(name string) Path {
	if p == "" {
		return Path(name)
	}
	return p + Path("."+name)
}

// Index returns the path of the i-th element or block of p, from 0.
func (p Path) Index(i int) Path { return p + Path("["+strconv.Itoa(i)+"]") }

// Key returns the path of one entry of a map, or of the block with that label.
func (p Path) Key(key string) Path { return p + Path("["+strconv.Quote(key)+"]") }

// String returns the path for messages, or "configuration" for the empty path.
func (p Path) String() string {
	if p == "" {
		return "configuration"
	}
	return string(p)
}

// Steps splits p into steps. If part of the path cannot be read, it returns the
// steps before that part and an error, so that a message can still point near
// it.
func (p Path) Steps() ([]Step, error) {
	var steps []Step
	rest := string(p)
	for first := true; rest != ""; first = false {
		var s Step
		var err error
		switch {
		case rest[0] == '[':
			s, rest, err = bracket(rest)
		case rest[0] == '.' && !first:
			s, rest, err = name(rest[1:])
		case first:
			s, rest, err = name(rest)
		default:
			err = errors.New("a dot or a bracket is missing")
		}
		if err != nil {
			return steps, fmt.Errorf("path %q: %w", string(p), err)
		}
		steps = append(steps, s)
	}
	return steps, nil
}

func name(s string) (Step, string, error) {
	end := strings.IndexAny(s, ".[")
	if end < 0 {
		end = len(s)
	}
	if end == 0 {
		return Step{}, "", errors.New("a name is missing")
	}
	return Step{Kind: StepName, Name: s[:end]}, s[end:], nil
}

func bracket(s string) (Step, string, error) {
	inner, rest := s[1:], ""
	quoted := strings.HasPrefix(inner, `"`)
	end := strings.IndexByte(inner, ']')
	if quoted {
		end = closingQuote(inner) + 1
	}
	if end <= 0 || end >= len(inner) || inner[end] != ']' {
		return Step{}, "", errors.New("a closing bracket, or what should be before it, is missing")
	}
	inner, rest = inner[:end], inner[end+1:]
	if quoted {
		s := Step{Kind: StepKey}
		err := json.Unmarshal([]byte(inner), &s.Name)
		return s, rest, err
	}
	i, err := strconv.ParseUint(inner, 10, 31)
	if err != nil {
		return Step{}, "", fmt.Errorf("%q is not an index: write a number from 0, or a key in double quotes", inner)
	}
	return Step{Kind: StepIndex, Index: int(i)}, rest, nil
}

// closingQuote returns the index of the closing quote of the JSON string that s
// begins with, or -1.
func closingQuote(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}
