package task

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Validate returns every rule of this package that the task breaks, with the
// JSON path of the value as Key, sorted by it. A format must never return a
// task that breaks a rule.
func (t *Task) Validate() []Problem {
	c := &checker{t: t, stages: map[string]bool{}, resources: map[string]*Resource{}}
	c.head()
	for i := range t.Stages {
		c.stages[t.Stages[i].Name] = true
	}
	for i := range t.Resources {
		c.resource(fmt.Sprintf("resources[%d]", i), &t.Resources[i])
	}
	c.environment("environment", &t.Environment)
	for i, s := range t.Services {
		c.service(fmt.Sprintf("services[%d]", i), s)
	}
	c.healthcheck("healthcheck", t.Healthcheck)
	for i := range t.Stages {
		c.stage(fmt.Sprintf("stages[%d]", i), i, &t.Stages[i])
	}
	c.offers()
	c.interaction()
	c.success()
	slices.SortStableFunc(c.ps, func(a, b Problem) int { return strings.Compare(a.Key, b.Key) })
	return c.ps
}

type checker struct {
	t         *Task
	ps        []Problem
	stages    map[string]bool
	resources map[string]*Resource
}

func (c *checker) bad(key, format string, args ...any) {
	c.ps = append(c.ps, Problem{Key: key, Severity: Error, Summary: key + " " + fmt.Sprintf(format, args...)})
}

func (c *checker) head() {
	t := c.t
	if t.Name == "" || strings.ContainsFunc(t.Name, unicode.IsControl) || !utf8.ValidString(t.Name) {
		c.bad("name", "is %q: it must be text without control characters", t.Name)
	}
	if !digestForm.MatchString(t.Digest) {
		c.bad("digest", "is %q: it must be sha256: and 64 hex digits", t.Digest)
	}
	if !path.IsAbs(t.Dir) {
		c.bad("dir", "is %q: it must be absolute", t.Dir)
	}
	if t.File != "" && !inside(t.File) {
		c.bad("file", "is %q: it must be a relative, clean path", t.File)
	}
	c.object("metadata", t.Metadata)
	c.mode("mode", t.Mode)
	paths := map[string]string{"paths.agent_logs": t.Paths.AgentLogs, "paths.verifier_logs": t.Paths.VerifierLogs, "paths.artifacts": t.Paths.Artifacts}
	for i, p := range t.Paths.Folders {
		paths[fmt.Sprintf("paths.folders[%d]", i)] = p
	}
	for key, p := range paths {
		if p != "" && (!path.IsAbs(p) || path.Clean(p) != p) {
			c.bad(key, "is %q: it must be absolute and clean", p)
		}
	}
	if len(t.Stages) == 0 {
		c.bad("stages", "is empty: a task has at least one stage")
	}
}

func (c *checker) resource(key string, r *Resource) {
	switch {
	case !inside(r.Name):
		c.bad(key+".name", "is %q: it must be a relative, clean path", r.Name)
	case reserved(r.Name):
		c.bad(key+".name", "is %q: task.json and attempt/ are made by the core", r.Name)
	case c.resources[r.Name] != nil:
		c.bad(key+".name", "is %q, which another resource has", r.Name)
	}
	c.resources[r.Name] = r
	if !inside(r.Path) && (r.Path != "" || !r.made()) {
		c.bad(key+".path", "is %q: it must be a relative, clean path", r.Path)
	}
	for _, role := range r.Audience {
		if !slices.Contains([]Role{RoleAgent, RoleVerifier, RoleUser, RoleOracle}, role) {
			c.bad(key+".audience", "has the unknown role %q", role)
		}
	}
	if r.Stage != "" && !c.stages[r.Stage] {
		c.bad(key+".stage", "is %q: there is no such stage", r.Stage)
	}
	if r.Place != "" && climbs(r.Place) {
		c.bad(key+".place", "is %q: it must not have \"..\" in it", r.Place)
	}
	phases := []PlacePhase{PlaceCreate, PlaceSetup, PlaceTurn, PlaceVerify}
	if known := slices.Contains(phases, r.Phase); known != (r.Place != "") || (!known && r.Phase != "") {
		c.bad(key+".phase", "is %q with place %q: both or neither, one of create, setup, turn, verify", r.Phase, r.Place)
	}
	if !r.Folder && len(r.Entries) > 0 {
		c.bad(key+".entries", "is not empty, but the resource is not a folder")
	}
	for i, e := range r.Entries {
		c.entry(fmt.Sprintf("%s.entries[%d]", key, i), e)
		if i > 0 && r.Entries[i-1].Path >= e.Path {
			c.bad(key+".entries", "is not sorted, or has %q twice", e.Path)
		}
	}
}

func (c *checker) entry(key string, e Entry) {
	if !inside(e.Path) {
		c.bad(key+".path", "is %q: it must be a relative, clean path", e.Path)
	}
	if e.From != "" && !inside(e.From) {
		c.bad(key+".from", "is %q: it must be a relative, clean path", e.From)
	}
	if e.Link != "" && !stays(path.Dir(e.Path), e.Link) {
		c.bad(key+".link", "is %q: it leaves the resource", e.Link)
	}
	if e.Mode&^0o777 != 0 {
		c.bad(key+".mode", "is %#o: only permission bits are allowed", e.Mode)
	}
	if e.Size < 0 {
		c.bad(key+".size", "is negative")
	}
	if e.Text != "" && (e.Folder || e.Link != "" || e.From != "" || e.Size != int64(len(e.Text))) {
		c.bad(key+".text", "is set, but the entry is not a file of that size, or comes from elsewhere")
	}
}

func (c *checker) object(key string, raw json.RawMessage) {
	if raw == nil {
		return
	}
	if !json.Valid(raw) || !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		c.bad(key, "is not a JSON object")
	}
}

func (c *checker) mode(key string, m Mode) {
	if m != "" && m != ModeCopies && m.rank() == 0 {
		c.bad(key, "is %q: it must be live, restarted, image, separate or copies", m)
	}
}

func (c *checker) reducer(key string, r Reducer) {
	if r != "" && !slices.Contains([]Reducer{ReduceMean, ReduceLast, ReduceMax, ReduceMin}, r) {
		c.bad(key, "is %q: it must be mean, last, max or min", r)
	}
}

func (c *checker) times(key string, ds ...Duration) {
	for _, d := range ds {
		if d < 0 {
			c.bad(key, "is %s: a time must not be negative", d)
		}
	}
}

func (c *checker) interaction() {
	in := c.t.Interaction
	if in == nil {
		return
	}
	if in.User != "" && (c.resources[in.User] == nil || !c.resources[in.User].For(RoleUser, c.resources[in.User].Stage)) {
		c.bad("interaction.user", "is %q: there is no such resource for the user", in.User)
	}
	if in.MaxFollowUps < 0 {
		c.bad("interaction.max_follow_ups", "is negative")
	}
	c.times("interaction.total", in.Total)
	c.reducer("interaction.reduce", in.Reduce)
	if !slices.Contains([]Reducer{"", ReduceLast, ReduceMax, ReduceMin}, in.Decide) {
		c.bad("interaction.decide", "is %q: it must be last, max or min", in.Decide)
	}
	if !slices.Contains([]string{"", UserError, FixedLine}, in.OnUserError) {
		c.bad("interaction.on_user_error", "is %q: it must be %s or %s", in.OnUserError, UserError, FixedLine)
	}
	if !slices.Contains([]string{"", HoldJudge, HoldCopy}, in.Hold) {
		c.bad("interaction.hold", "is %q: it must be %s or %s", in.Hold, HoldJudge, HoldCopy)
	}
	c.words("interaction.charged", in.Charged, ChargedParts)
	c.words("interaction.after", in.After, AfterEnds)
}

func (c *checker) words(key string, got, known []string) {
	for _, w := range got {
		if !slices.Contains(known, w) {
			c.bad(key, "has %q: it must be one of %s", w, strings.Join(known, ", "))
		}
	}
}

func (c *checker) success() {
	s := c.t.Success
	c.reducer("success.reduce", s.Reduce)
	if s.AtLeast != nil && (s.Score == "" || !finite(*s.AtLeast)) {
		c.bad("success.at_least", "needs a score by name and must be finite")
	}
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// inside reports whether p is a clean, relative slash path that does not leave
// its folder.
func inside(p string) bool {
	return p != "" && p != "." && !path.IsAbs(p) && path.Clean(p) == p && p != ".." &&
		!strings.HasPrefix(p, "../") && !strings.ContainsRune(p, 0)
}

// reserved reports whether the core itself creates a file of that name in a
// view.
func reserved(name string) bool {
	return name == "task.json" || name == "attempt" || strings.HasPrefix(name, "attempt/")
}

func climbs(p string) bool { return slices.Contains(strings.Split(p, "/"), "..") }

// stays reports whether a link in dir to target stays within the folder that
// dir is relative to.
func stays(dir, target string) bool {
	if path.IsAbs(target) {
		return false
	}
	p := path.Join(dir, target)
	return p != ".." && !strings.HasPrefix(p, "../")
}
