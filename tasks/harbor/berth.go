package harbor

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
)

// berthConfig is [metadata.berth]: what only Berth knows. The format's own tool
// keeps metadata and does not read it.
type berthConfig struct {
	path           string
	score          string // that results have, without a threshold; empty: the reward, and 1 passes
	verifiers      []task.VerifierUse
	startup, stall task.Duration
	interaction    *task.Interaction
	persona        string   // path of a file of the task; empty: none
	show           []string // sources of artifacts that the simulated user sees, too
	surface        *task.Surface
	settings       json.RawMessage // for the environment
	files          string          // folder for the plugin with the surface; empty: none
	captures       []task.Capture
}

func (d *decoder) berth(t *table) berthConfig {
	c := berthConfig{path: t.path, score: t.str("score", ""), startup: t.seconds("startup_sec", 0), stall: t.seconds("stall_sec", 0)}
	for _, v := range t.tables("verifiers") {
		c.verifiers = append(c.verifiers, d.verifierUse(v))
	}
	if in := t.table("interaction"); in.has() {
		c.interaction = &task.Interaction{
			Total: in.seconds("total_sec", 0), Charged: in.words("charged", task.ChargedParts), After: in.words("after", task.AfterEnds),
			Hold:   in.word("hold", "", false, task.HoldJudge, task.HoldCopy),
			Reduce: task.Reducer(in.word("reduce", "", false, "last", "max", "min", "mean")),
			Decide: task.Reducer(in.word("decide", "", false, "last", "max", "min")),
		}
		n, ok := in.integer("max_follow_ups")
		switch {
		case !ok && in.m["max_follow_ups"] == nil:
			d.bad(in.path, "Setting is missing", "Write max_follow_ups: how many messages the simulated user may send in a stage.")
		case ok && (n < 0 || n > 1000):
			d.bad(in.at("max_follow_ups"), "Number out of range", "%d is not between 0 and 1000.", n)
		}
		c.interaction.MaxFollowUps = int(n)
		c.persona, c.show = in.str("persona", ""), in.strings("show")
		in.done()
	}
	d.surface(t, &c)
	t.done()
	return c
}

// surface reads [metadata.berth.surface] and [[metadata.berth.captures]].
func (d *decoder) surface(t *table, c *berthConfig) {
	for _, p := range t.tables("captures") {
		c.captures = append(c.captures, task.Capture{Name: d.required(p, "name"), Settings: d.settings(p)})
		p.done()
	}
	s := t.table("surface")
	if !s.has() {
		if len(c.captures) > 0 {
			d.bad(t.at("captures"), "Captures without a surface", "They are taken from one. Write a table %s, which may be empty.", t.at("surface"))
		}
		return
	}
	c.surface = &task.Surface{Level: s.str("level", ""), Actions: s.strings("actions"), Observations: s.strings("observations")}
	c.settings, c.files = d.settings(s), s.str("files", "")
	n, ok := s.integer("steps")
	if ok && (n < 1 || n > 1_000_000) {
		d.bad(s.at("steps"), "Number out of range", "%d is not between 1 and 1000000.", n)
	}
	c.surface.Steps = int(n)
	s.done()
}

// settings returns the table of that name as JSON; nil without one.
func (d *decoder) settings(t *table) json.RawMessage {
	settings := t.table("settings")
	if !settings.has() {
		return nil
	}
	raw, err := json.Marshal(settings.m)
	if err != nil {
		d.bad(settings.path, "Settings cannot be kept", "They have a value that JSON cannot say: %v.", err)
	}
	return raw
}

func (d *decoder) verifierUse(t *table) task.VerifierUse {
	u := task.VerifierUse{Name: d.required(t, "name"), Settings: d.settings(t)}
	u.Advisory, _ = t.boolean("advisory")
	if u.Name == verifierName {
		d.bad(t.at("name"), "Verifier is there already", "%q runs the task's own tests, after the verifiers of this list.", u.Name)
	}
	t.done()
	return u
}

// words returns a list of some of the words allowed.
func (t *table) words(key string, allowed []string) []string {
	list := t.strings(key)
	for i, w := range list {
		if !slices.Contains(allowed, w) {
			t.r.bad(index(t.at(key), i), "Unknown value", "%q is not one of %s.%s", w, strings.Join(allowed, ", "), meant(w, allowed))
		}
	}
	return list
}

// graded adds the verifiers of [metadata.berth] before the task's own tests, which
// the task may then do without.
func (b *builder) graded(st *task.Stage, dir string, script task.VerifierUse) {
	own := b.config.berth.verifiers
	name := testScript(b.config.env.os)
	st.Verifiers = slices.Clone(own)
	if len(own) == 0 || st.VerifyFilesInImage || b.isFile(path.Join(dir, dirTests, name)) || b.isFile(path.Join(dirTests, name)) {
		st.Verifiers = append(st.Verifiers, script)
	}
}

// interact fills in the rest of [metadata.berth].
func (b *builder) interact() {
	c := &b.config.berth
	b.t.Interaction = c.interaction
	for i := range b.t.Stages {
		s := &b.t.Stages[i]
		s.Agent.Startup, s.Agent.Stall, s.Surface, s.Captures = c.startup, c.stall, c.surface, c.captures
		for n, source := range c.show {
			b.show(s, source, fmt.Sprintf("%s.interaction.show[%d]", c.path, n))
		}
	}
	if c.surface != nil {
		b.t.Environment.Settings = c.settings
		switch {
		case c.files == "":
		case b.isDir(c.files):
			b.resource(&task.Resource{Name: "surface", Path: c.files, Folder: true})
			b.t.Environment.Files = append(b.t.Environment.Files, "surface")
		default:
			b.reader.bad(c.path+".surface.files", "Folder is missing", "%q is not a folder of the task. Put it into %s/.", c.files, dirTests)
		}
	}
	if c.persona == "" {
		return
	}
	if !b.isFile(c.persona) {
		b.reader.bad(c.path+".interaction.persona", "File is missing", "%q is not a file of the task. Put it into %s/.", c.persona, dirTests)
		return
	}
	c.interaction.User = "user/" + path.Base(c.persona)
	b.resource(&task.Resource{Name: c.interaction.User, Path: c.persona, Audience: []task.Role{task.RoleVerifier, task.RoleUser}})
}

// show lets the simulated user see the artifact with that source.
func (b *builder) show(s *task.Stage, source, key string) {
	for i := range s.Artifacts {
		if s.Artifacts[i].Source == source {
			s.Artifacts[i].Audience = []task.Role{task.RoleVerifier, task.RoleUser}
			return
		}
	}
	if source != placeArtifacts {
		b.reader.bad(key, "Unknown artifact", "No artifact has the source %q. Name one of the task's artifacts, or %s.", source, placeArtifacts)
		return
	}
	s.Artifacts = append(s.Artifacts, task.Artifact{Source: source, Audience: []task.Role{task.RoleVerifier, task.RoleUser}})
}
