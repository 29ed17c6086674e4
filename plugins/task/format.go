package task

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Format turns folders into tasks. One value serves many calls at once: every
// method is safe for concurrent use.
type Format interface {
	// Name is what an experiment calls the format.
	Name() string
	// Detect reports whether dir looks like a task of this format, valid or
	// not. It reads no file.
	Detect(dir string) bool
	// Load reads the folder, or what else Find of a Finder names, and reports
	// every problem it finds, not only the first. The task is nil if and only if
	// a problem is an error or err is not nil; err means that the folder could
	// not be read. Load changes nothing and runs nothing.
	Load(ctx context.Context, dir string, o Options) (*Task, []Problem, error)
}

// Finder is optional: a Format that implements it has tasks that are not one
// folder each. Detect then reports whether a folder holds such tasks, Task.Dir
// is that folder, and Task.File says which of its tasks it is.
type Finder interface {
	// Find returns the paths of the tasks in a folder that Detect accepts, valid
	// or not: slash-separated, relative to the folder and sorted. Each, appended
	// to the folder, is what Load reads. An error means that the folder could not
	// be read.
	Find(ctx context.Context, dir string, o Options) ([]string, error)
	// Files returns the files and folders that a task depends on, absolute. An
	// edit of anything else leaves the task as it is.
	Files(t *Task) []string
}

// Chooser is optional: a Format that implements it takes only some of the tasks that
// were found, by its settings.
type Chooser interface {
	// Choose returns those of the paths, relative to Options.Dataset, that are taken.
	// An error means that the settings do not fit the dataset.
	Choose(paths []string, o Options) ([]string, error)
}

// Cataloger is optional: a Format that implements it has datasets with a list of their
// tasks.
type Cataloger interface {
	// Missing returns a problem for each task that the dataset in a folder lists and that
	// is not among those that were found there, valid or not.
	Missing(dir string, found []Item) []Problem
}

// Configurable is optional: a Format that implements it has settings, in the
// `config` block of a dataset.
type Configurable interface {
	// Config returns a pointer to a new struct of settings, as in package
	// plugins/config. It may be a config.Validator.
	Config() any
}

// Reload reads a task again from where it came from.
func Reload(ctx context.Context, f Format, t *Task, o Options) (*Task, []Problem, error) {
	return f.Load(ctx, t.HostPath(t.File), o)
}

// Files returns the files and folders that a task depends on, absolute. Without a
// Finder this is the task's folder.
func Files(f Format, t *Task) []string {
	if finder, ok := f.(Finder); ok {
		return finder.Files(t)
	}
	return []string{t.Dir}
}

// Sampler is optional: a Format that implements it offers a sample task to
// start from.
type Sampler interface {
	// Sample returns a small task and the name of its folder. The task loads
	// without a problem, and its own reference solution passes.
	Sample() (name string, files []SampleFile, err error)
}

// SampleFile is a file of a sample task.
type SampleFile struct {
	Path       string // slash-separated, relative to the task's folder
	Text       []byte
	Executable bool
}

// Options are the user's choices for loading. The zero value is strict and
// lets no host variable through.
type Options struct {
	// Lenient turns unknown keys into warnings.
	Lenient bool
	// AllowEnv are patterns, as of path.Match, of the host variables that the
	// task's files may ask for.
	AllowEnv []string
	// LookupEnv reads a host variable and reports whether it is set. Lookup
	// calls it only for names that AllowEnv allows. Nil means that none is set.
	LookupEnv func(string) (string, bool)
	// Describe says that the tasks are only described, without an experiment: what
	// only the settings of a dataset can say, such as where an application is, is a
	// warning where it is missing.
	Describe bool
	// Config is the JSON of the dataset's `config` block, which fits the schema of
	// the format's settings; see Configurable. Empty means that there is none.
	Config json.RawMessage
	// Dataset is the absolute path of the dataset's folder, to which paths in Config
	// are relative. List sets it.
	Dataset string
	// All takes all tasks, also those that Config leaves out: an audit has the folder
	// of a dataset, but not a list of names beside it.
	All bool
}

// EnvAllowed says whether the task's files may ask for the host variable.
func (o *Options) EnvAllowed(name string) bool {
	return slices.ContainsFunc(o.AllowEnv, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// Lookup reads a host variable that is allowed. Any other one is not set.
func (o *Options) Lookup(name string) (string, bool) {
	if o.LookupEnv == nil || !o.EnvAllowed(name) {
		return "", false
	}
	return o.LookupEnv(name)
}

// Severity is how bad a problem is.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // the task cannot be run
	Warning Severity = "warning" // the task can be run, but not as its author may think
)

// Problem is one thing wrong with a task's files.
type Problem struct {
	// File is slash-separated and relative to the task's folder; empty means
	// the folder itself.
	File string `json:"file,omitempty"`
	// Line and Column begin at 1; 0 means unknown.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Key is the dotted path of the setting, such as "agent.timeout_sec".
	Key      string   `json:"key,omitempty"`
	Severity Severity `json:"severity"`
	// Summary is what is wrong, without a full stop.
	Summary string `json:"summary"`
	// Detail is what was given, what is allowed, and how to fix it.
	Detail string `json:"detail,omitempty"`
	// Outside says that something outside of the dataset's folder is missing, which
	// its settings name. An archive of a run does not have it either.
	Outside bool `json:"-"`
}

// String is one line: where, what, and what to do.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
			if p.Column > 0 {
				fmt.Fprintf(&b, ":%d", p.Column)
			}
		}
		b.WriteString(": ")
	}
	if p.Severity == Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(p.Summary)
	if p.Detail != "" {
		b.WriteString(separator(p.Detail) + p.Detail)
	}
	return b.String()
}

// separator stands between a summary and its detail, which is a sentence or
// completes the summary.
func separator(detail string) string {
	if r, _ := utf8.DecodeRuneInString(detail); unicode.IsUpper(r) {
		return ". "
	}
	return ": "
}

// Broken says whether one of the problems is an error.
func Broken(ps []Problem) bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return p.Severity == Error })
}
