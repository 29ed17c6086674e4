// Package dockerfile evaluates a Dockerfile without running anything: its
// environment, users and commands, and the files to copy. It lists everything
// else with its line, so that an environment can refuse it by name.
//
// It only reads the text: it opens no file of the build context, knows no base
// image, and applies nothing. BuildKit's own parser handles lines, quoting,
// here-documents and variables.
package dockerfile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// File is the result of the last stage of a Dockerfile and the stages that it
// is based on.
type File struct {
	// From is the image that the first of these stages begins with.
	From     string
	FromLine int
	Env      map[string]string
	User     string
	// Workdir is absolute; empty when there is no WORKDIR.
	Workdir string
	// Shell is what SHELL says; empty means /bin/sh -c.
	Shell []string
	// Entrypoint and Cmd are argvs: the shell form has the shell in front.
	Entrypoint []string
	Cmd        []string
	// Steps are the folders to make and the files to copy, in order.
	Steps []Step
	// Refused is everything that cannot be applied, in order.
	Refused []Refusal
}

// Step is a folder to make, or files to copy. Exactly one field is set.
type Step struct {
	Folder string // absolute
	Copy   *Copy
}

// Copy is one COPY or ADD of files of the build context.
type Copy struct {
	Line int
	// Sources are paths and patterns in the context, as written.
	Sources []string
	// Inline are files whose content stands in the Dockerfile.
	Inline []Inline
	// To is absolute. With a trailing slash it is a folder. Without one it is
	// the file itself, unless a folder exists there.
	To string
	// User and Group are of --chown, empty for root.
	User, Group string
	// Mode is what --chmod says, in octal digits; empty keeps each file's own.
	Mode string
}

// Inline is a here-document.
type Inline struct{ Name, Data string }

// Refusal is an instruction that cannot be applied.
type Refusal struct {
	Line        int
	Instruction string // in capitals
	Text        string // the line as written, shortened
	Why         string
}

// MaxBytes is the largest Dockerfile that is read.
const MaxBytes = 1 << 20

// Read reads a Dockerfile up to the stage target, or its last, with values for
// its ARG instructions. An error means that the file is invalid, and names the
// line. Instructions that cannot be applied are in File.Refused.
func Read(data []byte, target string, args map[string]string) (*File, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("dockerfile has more than %d bytes", MaxBytes)
	}
	ast, err := parser.Parse(bytes.NewReader(data))
	if err != nil {
		return nil, located(err)
	}
	stages, global, err := instructions.Parse(ast.AST, nil)
	if err != nil {
		return nil, located(err)
	}
	if len(stages) == 0 {
		return nil, errors.New("dockerfile has no FROM")
	}
	r := &reader{lex: shell.NewLex(ast.EscapeToken), stages: stages, given: args}
	if err := r.globals(global); err != nil {
		return nil, err
	}
	last := len(stages) - 1
	if target != "" {
		var ok bool
		if last, ok = instructions.HasStage(stages, target); !ok {
			return nil, fmt.Errorf("dockerfile has no stage %q", target)
		}
	}
	f := &File{Env: map[string]string{}}
	if err := r.stage(last, f); err != nil {
		return nil, err
	}
	return f, nil
}

// reader holds what does not change from stage to stage.
type reader struct {
	lex    *shell.Lex
	stages []instructions.Stage
	global map[string]string // of ARG before the first FROM
	given  map[string]string // values for ARG
}

func (r *reader) globals(args []instructions.ArgCommand) error {
	r.global = map[string]string{}
	for i := range args {
		if err := r.expand(&args[i], r.global); err != nil {
			return err
		}
		for _, a := range args[i].Args {
			if v, ok := r.given[a.Key]; ok {
				r.global[a.Key] = v
			} else if a.Value != nil {
				r.global[a.Key] = *a.Value
			}
		}
	}
	return nil
}

// stage applies a stage on top of its base.
func (r *reader) stage(i int, f *File) error {
	s := &r.stages[i]
	base, _, err := r.lex.ProcessWord(s.BaseName, vars(r.global))
	if err != nil {
		return fmt.Errorf("line %d: FROM: %w", line(s.Location), err)
	}
	if before, ok := instructions.HasStage(r.stages[:i], base); ok {
		if err := r.stage(before, f); err != nil {
			return err
		}
	} else {
		f.From, f.FromLine = base, line(s.Location)
		if base == "" {
			return fmt.Errorf("line %d: FROM names no image", f.FromLine)
		}
	}
	st := &state{File: f, reader: r, args: map[string]string{}}
	for _, c := range s.Commands {
		if err := st.apply(c); err != nil {
			return err
		}
	}
	return nil
}

// state is the state of a stage between two instructions.
type state struct {
	*File
	*reader
	args map[string]string // of ARG
}

// Path is the PATH of a base that sets none, as in BuildKit, so that ENV
// PATH=/opt/bin:$PATH keeps the programs of the base.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// known are the variables that can be used: ENV wins over ARG, and both over
// what the base has.
func (s *state) known() map[string]string {
	all := map[string]string{"PATH": Path}
	maps.Copy(all, s.args)
	maps.Copy(all, s.Env)
	return all
}

// expand replaces the variables of an instruction.
func (r *reader) expand(c instructions.Command, known map[string]string) error {
	if e, ok := c.(instructions.SupportsSingleWordExpansion); ok {
		err := e.Expand(func(word string) (string, error) {
			out, _, err := r.lex.ProcessWord(word, vars(known))
			return out, err
		})
		if err != nil {
			return fmt.Errorf("line %d: %s: %w", line(c.Location()), strings.ToUpper(c.Name()), err)
		}
	}
	if e, ok := c.(instructions.SupportsSingleWordExpansionRaw); ok {
		lex := shell.NewLex('\\')
		lex.SkipProcessQuotes = true
		err := e.ExpandRaw(func(word string) (string, error) {
			out, _, err := lex.ProcessWord(word, vars(known))
			return out, err
		})
		if err != nil {
			return fmt.Errorf("line %d: %s: %w", line(c.Location()), strings.ToUpper(c.Name()), err)
		}
	}
	return nil
}

func (s *state) apply(c instructions.Command) error {
	if err := s.expand(c, s.known()); err != nil {
		return err
	}
	switch c := c.(type) {
	case *instructions.ArgCommand:
		s.arg(c)
	case *instructions.EnvCommand:
		for _, kv := range c.Env {
			s.Env[kv.Key] = kv.Value
		}
	case *instructions.WorkdirCommand:
		s.Workdir = s.absolute(c.Path)
		s.Steps = append(s.Steps, Step{Folder: s.Workdir})
	case *instructions.UserCommand:
		s.User = c.User
	case *instructions.ShellCommand:
		s.Shell = c.Shell
	case *instructions.EntrypointCommand:
		s.Entrypoint = s.argv(c.ShellDependantCmdLine)
	case *instructions.CmdCommand:
		s.Cmd = s.argv(c.ShellDependantCmdLine)
	case *instructions.CopyCommand:
		s.copy(c)
	case *instructions.AddCommand:
		s.add(c)
	case *instructions.LabelCommand, *instructions.ExposeCommand, *instructions.StopSignalCommand, *instructions.MaintainerCommand, *instructions.HealthCheckCommand:
		// They concern only an engine that runs the image.
	case *instructions.RunCommand:
		s.refuse(c, "nothing can be run to build it")
	default:
		s.refuse(c, "it needs an image to be built")
	}
	return nil
}

// arg sets what ARG says: the value that is given, its default, or the value of
// the same name that stands before the first FROM.
func (s *state) arg(c *instructions.ArgCommand) {
	for _, a := range c.Args {
		if v, ok := s.given[a.Key]; ok {
			s.args[a.Key] = v
		} else if a.Value != nil {
			s.args[a.Key] = *a.Value
		} else if v, ok := s.global[a.Key]; ok {
			s.args[a.Key] = v
		}
	}
}

func (s *state) argv(c instructions.ShellDependantCmdLine) []string {
	if !c.PrependShell {
		return slices.Clone(c.CmdLine)
	}
	sh := s.Shell
	if len(sh) == 0 {
		sh = []string{"/bin/sh", "-c"}
	}
	return append(slices.Clone(sh), strings.Join(c.CmdLine, " "))
}

// absolute is a path of the image, from the working folder on.
func (s *state) absolute(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join("/", s.Workdir, p)
}

func (s *state) copy(c *instructions.CopyCommand) {
	switch {
	case c.From != "":
		s.refuse(c, "it copies from another image or stage")
	case c.Parents || len(c.ExcludePatterns) > 0:
		s.refuse(c, "--parents and --exclude are not applied")
	default:
		s.files(c, &c.SourcesAndDest, &Copy{Mode: c.Chmod}, c.Chown)
	}
}

func (s *state) add(c *instructions.AddCommand) {
	switch {
	case slices.ContainsFunc(c.SourcePaths, remote):
		s.refuse(c, "it needs the network")
	case len(c.ExcludePatterns) > 0:
		s.refuse(c, "--exclude is not applied")
	case slices.ContainsFunc(c.SourcePaths, archived) && (c.Unpack == nil || *c.Unpack):
		s.refuse(c, "archives are not unpacked: COPY what is in them")
	default:
		s.files(c, &c.SourcesAndDest, &Copy{Mode: c.Chmod}, c.Chown)
	}
}

// archived reports whether a source is an archive, by its name.
func archived(source string) bool {
	return archiveName.MatchString(source)
}

var archiveName = regexp.MustCompile(`(?i)\.(tar|tgz|tbz2?|txz)$|\.tar\.\w+$`)

func remote(source string) bool {
	return strings.Contains(source, "://") || strings.HasPrefix(source, "git@")
}

func (s *state) files(c instructions.Command, sd *instructions.SourcesAndDest, to *Copy, chown string) {
	if strings.Trim(to.Mode, "01234567") != "" {
		s.refuse(c, "--chmod is applied as octal digits only")
		return
	}
	to.Line = line(c.Location())
	to.User, to.Group, _ = strings.Cut(chown, ":")
	to.Sources = slices.Clone(sd.SourcePaths)
	for _, in := range sd.SourceContents {
		to.Inline = append(to.Inline, Inline{Name: in.Path, Data: in.Data})
	}
	to.To = s.absolute(sd.DestPath)
	folder := strings.HasSuffix(sd.DestPath, "/") || sd.DestPath == "." || strings.HasSuffix(sd.DestPath, "/.")
	if (folder || len(to.Sources)+len(to.Inline) > 1) && to.To != "/" {
		to.To += "/"
	}
	s.Steps = append(s.Steps, Step{Copy: to})
}

func (s *state) refuse(c instructions.Command, why string) {
	text := c.Name()
	if t, ok := c.(fmt.Stringer); ok {
		text = t.String()
	}
	text, _, _ = strings.Cut(text, "\n")
	if r := []rune(text); len(r) > 80 {
		text = string(r[:79]) + "…"
	}
	s.Refused = append(s.Refused, Refusal{line(c.Location()), strings.ToUpper(c.Name()), text, why})
}

func line(at []parser.Range) int {
	if len(at) == 0 {
		return 0
	}
	return at[0].Start.Line
}

// located puts the line in front of an error of the reader.
func located(err error) error {
	if at, ok := errors.AsType[*parser.LocationError](err); ok && len(at.Locations) > 0 && line(at.Locations[0]) > 0 {
		return fmt.Errorf("line %d: %w", line(at.Locations[0]), err)
	}
	return err
}

// vars serves variables to the word processor.
type vars map[string]string

// Get returns the variable of that name.
func (v vars) Get(name string) (string, bool) {
	s, ok := v[name]
	return s, ok
}

// Keys returns all names, sorted.
func (v vars) Keys() []string { return slices.Sorted(maps.Keys(v)) }
