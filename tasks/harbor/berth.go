package harbor

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
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
	expect         map[string]string
}

func (d *decoder) berth(t *document.Table) berthConfig {
	c := berthConfig{path: t.Path, score: t.Text("score", ""), startup: seconds(t, "startup_sec", 0), stall: seconds(t, "stall_sec", 0)}
	for _, v := range t.Tables("verifiers") {
		c.verifiers = append(c.verifiers, d.verifierUse(v))
	}
	if in := t.Below("interaction"); in.Exists() {
		c.interaction = &task.Interaction{
			Total: seconds(in, "total_sec", 0), Charged: words(in, "charged", task.ChargedParts), After: words(in, "after", task.AfterEnds),
			Hold:   in.Word("hold", "", task.HoldJudge, task.HoldCopy),
			Reduce: task.Reducer(in.Word("reduce", "", "last", "max", "min", "mean")),
			Decide: task.Reducer(in.Word("decide", "", "last", "max", "min")),
		}
		n, ok := in.Integer("max_follow_ups")
		switch {
		case !ok && in.Values["max_follow_ups"] == nil:
			d.Bad(in.Path, "Setting is missing", "Write max_follow_ups: how many messages the simulated user may send in a stage.")
		case ok && (n < 0 || n > 1000):
			d.Bad(in.At("max_follow_ups"), "Number out of range", "%d is not between 0 and 1000.", n)
		}
		c.interaction.MaxFollowUps = int(n)
		c.persona, c.show = in.Text("persona", ""), in.Strings("show")
		in.Done()
	}
	if expect := t.Below("expect"); expect.Exists() {
		c.expect = map[string]string{}
		for key := range expect.Values {
			c.expect[key] = expect.Word(key, "", task.Expectations...)
		}
	}
	d.surface(t, &c)
	t.Done()
	return c
}

// surface reads [metadata.berth.surface] and [[metadata.berth.captures]].
func (d *decoder) surface(t *document.Table, c *berthConfig) {
	for _, p := range t.Tables("captures") {
		c.captures = append(c.captures, task.Capture{Name: p.Required("name"), Settings: p.Below("settings").JSON()})
		p.Done()
	}
	s := t.Below("surface")
	if !s.Exists() {
		if len(c.captures) > 0 {
			d.Bad(t.At("captures"), "Captures without a surface", "They are taken from one. Write a table %s, which may be empty.", t.At("surface"))
		}
		return
	}
	c.surface = &task.Surface{Level: s.Text("level", ""), Actions: s.Strings("actions"), Observations: s.Strings("observations")}
	c.settings, c.files = s.Below("settings").JSON(), s.Text("files", "")
	n, ok := s.Integer("steps")
	if ok && (n < 1 || n > 1_000_000) {
		d.Bad(s.At("steps"), "Number out of range", "%d is not between 1 and 1000000.", n)
	}
	c.surface.Steps = int(n)
	s.Done()
}

func (d *decoder) verifierUse(t *document.Table) task.VerifierUse {
	u := task.VerifierUse{Name: t.Required("name"), Settings: t.Below("settings").JSON()}
	u.Advisory, _ = t.Boolean("advisory")
	if u.Name == verifierName {
		d.Bad(t.At("name"), "Verifier is there already", "%q runs the task's own tests, after the verifiers of this list.", u.Name)
	}
	t.Done()
	return u
}

// words returns a list of some of the words allowed.
func words(t *document.Table, key string, allowed []string) []string {
	list := t.Strings(key)
	for i, w := range list {
		if !slices.Contains(allowed, w) {
			t.R.Bad(document.Index(t.At(key), i), "Unknown value", "%q is not one of %s.%s", w, strings.Join(allowed, ", "), document.Meant(w, allowed))
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
	if len(own) == 0 || st.VerifyFilesInImage || b.IsFile(path.Join(dir, dirTests, name)) || b.IsFile(path.Join(dirTests, name)) {
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
		case b.IsDir(c.files):
			b.resource(&task.Resource{Name: "surface", Path: c.files, Folder: true})
			b.t.Environment.Files = append(b.t.Environment.Files, "surface")
		default:
			b.reader.Bad(c.path+".surface.files", "Folder is missing", "%q is not a folder of the task. Put it into %s/.", c.files, dirTests)
		}
	}
	if c.persona == "" {
		return
	}
	if !b.IsFile(c.persona) {
		b.reader.Bad(c.path+".interaction.persona", "File is missing", "%q is not a file of the task. Put it into %s/.", c.persona, dirTests)
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
		b.reader.Bad(key, "Unknown artifact", "No artifact has the source %q. Name one of the task's artifacts, or %s.", source, placeArtifacts)
		return
	}
	s.Artifacts = append(s.Artifacts, task.Artifact{Source: source, Audience: []task.Role{task.RoleVerifier, task.RoleUser}})
}
