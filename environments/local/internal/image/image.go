package image

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/environment"
)

// Image is what a Dockerfile comes to.
type Image struct {
	Facts    environment.ImageFacts
	From     string                // what it is meant to be built on
	Folders  []string              // of WORKDIR, absolute, in their order
	Refusals []environment.Problem // what cannot be applied; all of them

	copies []copying
	dir    string
	file   string
}

// copying is one COPY or ADD.
type copying struct {
	line    int
	sources []string
	to      string // absolute; a trailing slash, where it was written, is kept
	user    string // of --chown, before the colon
	group   string
	mode    int64 // of --chmod; -1: each file's own
	after   int   // how many Folders there are at that point
}

// Base is ImageFacts.Base where the host's own programs are the base.
const Base = "host"

// rest is said wherever something is refused.
const rest = `choose an environment that builds images (environment "podman" or "docker")`

// Read reads the Dockerfile of a build. An error means that it cannot be read;
// what cannot be applied is in Refusals.
func Read(build environment.Image) (*Image, error) {
	im := &Image{Facts: environment.ImageFacts{Base: Base, Digest: build.Digest}, dir: build.Build, file: build.File}
	if build.Build == "" {
		return im, nil
	}
	if im.file == "" {
		im.file = "Dockerfile"
	}
	root, err := os.OpenRoot(build.Build)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", environment.ErrBadImage, err)
	}
	defer root.Close()
	f, err := root.Open(filepath.FromSlash(im.file))
	if err != nil {
		return nil, fmt.Errorf("%w: open %s: %w", environment.ErrBadImage, filepath.Join(im.dir, im.file), err)
	}
	defer f.Close()
	all, err := parse(f)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", environment.ErrBuildFailed, filepath.Join(im.dir, im.file), err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %s has no instruction", environment.ErrBuildFailed, filepath.Join(im.dir, im.file))
	}
	s := &reading{Image: im, args: map[string]string{}, stages: map[string]*stage{}}
	for _, i := range all {
		if err := s.apply(i); err != nil {
			return nil, fmt.Errorf("%w: %s line %d: %s: %w", environment.ErrBuildFailed, filepath.Join(im.dir, im.file), i.line, i.name, err)
		}
	}
	if s.at == nil {
		return nil, fmt.Errorf("%w: %s has no FROM", environment.ErrBuildFailed, filepath.Join(im.dir, im.file))
	}
	im.From, im.Facts, im.Folders, im.copies, im.Refusals = s.at.from, s.at.facts, s.at.folders, s.at.copies, s.at.refusals
	return im, nil
}

// reading is the state between two instructions.
type reading struct {
	*Image
	args   map[string]string // before the first FROM
	stages map[string]*stage
	at     *stage
	count  int
}

// stage is what one FROM begins.
type stage struct {
	from     string
	facts    environment.ImageFacts
	folders  []string
	copies   []copying
	refusals []environment.Problem
	args     map[string]string
}

func (s *stage) clone() *stage {
	c := *s
	c.facts.Env = maps.Clone(s.facts.Env)
	c.args = map[string]string{}
	c.folders, c.copies, c.refusals = slices.Clone(s.folders), slices.Clone(s.copies), slices.Clone(s.refusals)
	return &c
}

// env looks a variable up: ENV before ARG.
func (s *stage) env(name string) (string, bool) {
	if v, ok := s.facts.Env[name]; ok {
		return v, ok
	}
	v, ok := s.args[name]
	return v, ok
}

func (r *reading) apply(i instruction) error {
	if i.name == "FROM" {
		return r.from(i)
	}
	if r.at == nil {
		if i.name != "ARG" {
			return errors.New("stands before FROM")
		}
		env := func(name string) (string, bool) { v, ok := r.args[name]; return v, ok }
		return setArgs(i, env, r.args, nil)
	}
	s := r.at
	switch i.name {
	case "ARG":
		return setArgs(i, s.env, s.args, r.args)
	case "ENV":
		return s.setEnv(i)
	case "LABEL", "EXPOSE", "STOPSIGNAL", "MAINTAINER":
		return nil // nothing of it is used here, as in the other environments
	case "WORKDIR":
		return s.workdir(i)
	case "USER":
		return s.one(i, func(v string) { s.facts.User = v })
	case "SHELL":
		if len(i.list) == 0 {
			return errors.New(`write a JSON list, such as ["/bin/bash", "-c"]`)
		}
		s.facts.Shell = i.list
		return nil
	case "CMD":
		s.facts.Cmd = s.command(i)
		return nil
	case "ENTRYPOINT":
		s.facts.Entrypoint, s.facts.Cmd = s.command(i), nil // as in Docker: it resets what the base says
		return nil
	case "COPY", "ADD":
		return s.copy(i)
	case "RUN", "VOLUME", "HEALTHCHECK", "ONBUILD":
		s.refuse(i, "the host's own programs are the base, and nothing is run or changed to build on them")
		return nil
	default:
		return errors.New("no such instruction")
	}
}

// refuse notes what cannot be applied.
func (s *stage) refuse(i instruction, why string) {
	text := i.rest
	if len(text) > 60 {
		text = text[:57] + "..."
	}
	s.refusals = append(s.refusals, environment.Problem{
		Summary: fmt.Sprintf("Dockerfile line %d: %s %s", i.line, i.name, text),
		Detail:  "Environment \"local\" does not apply it: " + why + ": " + rest + ".",
	})
}

func (r *reading) from(i instruction) error {
	args := func(name string) (string, bool) { v, ok := r.args[name]; return v, ok }
	w, err := words(i.rest, args)
	if err != nil {
		return err
	}
	if len(w) != 1 && (len(w) != 3 || !strings.EqualFold(w[1], "AS")) {
		return errors.New("write FROM image, or FROM image AS name")
	}
	if earlier := r.stages[strings.ToLower(w[0])]; earlier != nil {
		r.at = earlier.clone()
	} else {
		r.at = &stage{from: w[0], args: map[string]string{}}
		r.at.facts = environment.ImageFacts{Base: Base, Digest: r.Facts.Digest, Env: map[string]string{}}
	}
	r.stages[strconv.Itoa(r.count)] = r.at
	r.count++
	if len(w) == 3 {
		r.stages[strings.ToLower(w[2])] = r.at
	}
	return nil
}

// setArgs sets ARG name or name=value. A name alone has the value that it has
// before FROM, if any.
func setArgs(i instruction, env func(string) (string, bool), into, global map[string]string) error {
	w, err := words(i.rest, env)
	if err != nil {
		return err
	}
	for _, arg := range w {
		name, value, given := strings.Cut(arg, "=")
		if g, ok := global[name]; ok && !given {
			value, given = g, true
		}
		if given {
			into[name] = value
		}
	}
	return nil
}

func (s *stage) setEnv(i instruction) error {
	w, err := words(i.rest, s.env)
	if err != nil {
		return err
	}
	if len(w) == 0 {
		return errors.New("write NAME=value")
	}
	if !strings.Contains(w[0], "=") { // the old form: the rest of the line is the value
		name, value, _ := strings.Cut(i.rest, " ")
		v, err := words(`"`+strings.ReplaceAll(strings.TrimSpace(value), `"`, `\"`)+`"`, s.env)
		if err != nil || len(v) != 1 {
			return errors.Join(errors.New("write NAME=value"), err)
		}
		s.facts.Env[name] = v[0]
		return nil
	}
	set := map[string]string{} // all values see the state before the line
	for _, pair := range w {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return fmt.Errorf("%q: write NAME=value", pair)
		}
		set[name] = value
	}
	maps.Copy(s.facts.Env, set)
	return nil
}

// one sets what has exactly one word.
func (s *stage) one(i instruction, set func(string)) error {
	w, err := words(i.rest, s.env)
	if err != nil {
		return err
	}
	if len(w) != 1 {
		return fmt.Errorf("takes one argument, got %d", len(w))
	}
	set(w[0])
	return nil
}

func (s *stage) workdir(i instruction) error {
	return s.one(i, func(dir string) {
		s.facts.Workdir = s.absolute(dir)
		s.folders = append(s.folders, s.facts.Workdir)
	})
}

// absolute is a path of the image, from the working folder on.
func (s *stage) absolute(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join("/", s.facts.Workdir, p)
}

// command is the argv of CMD or ENTRYPOINT.
func (s *stage) command(i instruction) []string {
	if i.list != nil || i.rest == "[]" {
		return i.list
	}
	shell := s.facts.Shell
	if len(shell) == 0 {
		shell = []string{"/bin/sh", "-c"}
	}
	return append(slices.Clone(shell), i.rest)
}

func (s *stage) copy(i instruction) error {
	c := copying{line: i.line, mode: -1, after: len(s.folders)}
	for flag, value := range i.flags {
		switch flag {
		case "link":
		case "chown":
			w, err := words(value, s.env)
			if err != nil || len(w) != 1 {
				return errors.Join(fmt.Errorf("--chown=%s: write user or user:group", value), err)
			}
			c.user, c.group, _ = strings.Cut(w[0], ":")
		case "chmod":
			mode, err := strconv.ParseUint(value, 8, 12)
			if err != nil {
				s.refuse(i, "--chmod is read as octal digits only, and this is "+strconv.Quote(value))
				return nil //nolint:nilerr // a refusal is an answer
			}
			c.mode = int64(mode)
		default:
			s.refuse(i, "--"+flag+" needs a build")
			return nil
		}
	}
	w := i.list
	if w == nil {
		var err error
		if w, err = words(i.rest, s.env); err != nil {
			return err
		}
	}
	if len(w) < 2 {
		return errors.New("write sources and a destination")
	}
	c.sources = w[:len(w)-1]
	to := w[len(w)-1]
	c.to = s.absolute(to)
	if strings.HasSuffix(to, "/") || strings.HasSuffix(to, "/.") || to == "." || len(c.sources) > 1 {
		c.to = strings.TrimSuffix(c.to, "/") + "/"
	}
	for _, source := range c.sources {
		if i.name == "ADD" && (strings.Contains(source, "://") || strings.HasPrefix(source, "git@")) {
			s.refuse(i, "it needs the network")
			return nil
		}
	}
	if top, _, _ := strings.Cut(strings.TrimPrefix(c.to, "/"), "/"); slices.Contains([]string{"proc", "dev", "berth", "sys"}, top) {
		s.refuse(i, "/"+top+" is not the image's")
		return nil
	}
	s.copies = append(s.copies, c)
	return nil
}
