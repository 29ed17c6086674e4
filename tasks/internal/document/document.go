// Package document reads the YAML and TOML files of tasks: values by name, with the
// place of whatever is wrong with them. Anchors, aliases, tags and merge keys of YAML
// are not read.
//
// It must not know any task format.
package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
)

// MaxSize bounds the file of a task, in bytes, and maxNesting how deep it nests. The
// memory for the paths in it grows with the square of that.
const (
	MaxSize    = 1 << 20
	maxNesting = 64
)

// Reader takes the values out of one file and collects its problems.
type Reader struct {
	File     string // relative to the dataset
	Lenient  bool   // unknown keys are warnings
	Problems []task.Problem
	// Homes says where keys belong that are often written in a wrong table; nil:
	// nothing.
	Homes map[string]string

	toml   bool                // its tables are called so, and values of other types are taken
	at     map[string]Position // by path, such as "steps[0].agent.timeout_sec"
	blocks map[string]bool     // texts that begin on the line after their key
}

// Position is a place in a file; both begin at 1, and 0 is not known.
type Position struct{ Line, Column int }

// Position returns the place of a path, or of the nearest thing around it.
func (r *Reader) Position(path string) Position {
	for path != "" {
		if p, ok := r.at[path]; ok {
			return p
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return r.at[""]
}

// bracket is a key of a table, as paths of settings have it.
var bracket = regexp.MustCompile(`\["((?:[^"\\]|\\.)*)"\]`)

// Dotted returns the path of a setting, such as fields["x"], as paths are here.
func Dotted(path string) string { return bracket.ReplaceAllString(path, ".$1") }

// Block reports whether a text is a block of YAML, which begins on the line after its
// key.
func (r *Reader) Block(path string) bool { return r.blocks[path] }

// Report adds a problem at the place of a path.
func (r *Reader) Report(s task.Severity, path, summary, format string, args ...any) {
	r.report(s, r.Position(path), path, summary, fmt.Sprintf(format, args...))
}

func (r *Reader) report(s task.Severity, at Position, path, summary, detail string) {
	r.Problems = append(r.Problems, task.Problem{File: r.File, Line: at.Line, Column: at.Column, Key: path, Severity: s, Summary: summary, Detail: detail})
}

// Bad reports an error at the place of a path.
func (r *Reader) Bad(path, summary, format string, args ...any) {
	r.Report(task.Error, path, summary, format, args...)
}

// Warn reports a warning at the place of a path.
func (r *Reader) Warn(path, summary, format string, args ...any) {
	r.Report(task.Warning, path, summary, format, args...)
}

// tooDeep reports a place that is nested too deeply.
func (r *Reader) tooDeep(at Position) {
	r.report(task.Error, at, "", "Nested too deeply", fmt.Sprintf("There are more than %d levels here, and nothing that a task says needs ten.", maxNesting))
}

// Join returns the path of a key in a table.
func Join(base, key string) string {
	if base == "" {
		return key
	}
	return base + "." + key
}

// Index returns the path of an element of a list, from 0.
func Index(base string, i int) string { return base + "[" + strconv.Itoa(i) + "]" }

// Number is a number of YAML, with the text that it was written as.
type Number struct {
	Text  string
	Value any // int64, uint64 or float64
}

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(n.Value)
	if err != nil {
		return nil, fmt.Errorf("it has the number %s", n.Text)
	}
	return b, nil
}

// unread stands for a value of YAML that is not read.
type unread struct{}

var errUnread = errors.New("it has an anchor, an alias or a tag, which are not read")

// MarshalJSON implements json.Marshaler.
func (unread) MarshalJSON() ([]byte, error) { return nil, errUnread }

// Entry is an element of a list, or another value, with its path.
type Entry struct {
	Path  string
	Value any
}

// Show writes a value as its author knows it.
func (r *Reader) Show(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case string:
		return fmt.Sprintf("the text %q", v)
	case Number:
		return "the number " + v.Text
	case map[string]any:
		return "a " + r.mapping()
	case []any:
		return "a list"
	case int64, float64, bool:
		return fmt.Sprint(v)
	case unread:
		return "an anchor, an alias or a tag, which are not read"
	default:
		return fmt.Sprintf("a %T", v)
	}
}

// mapping is what values by name are called.
func (r *Reader) mapping() string {
	if r.toml {
		return "table"
	}
	return "mapping"
}

// JSON returns a value as JSON; nil: it cannot be said in JSON, which is reported.
func (r *Reader) JSON(e Entry) json.RawMessage {
	b, err := json.Marshal(e.Value)
	if err == nil {
		return b
	}
	if in, ok := errors.AsType[*json.MarshalerError](err); ok {
		err = in.Err
	}
	r.Bad(e.Path, "Cannot be read", "JSON cannot say it: %s.", strings.TrimPrefix(err.Error(), "json: "))
	return nil
}
