package uniclaw

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
	"github.com/berth-eval/berth/tasks/internal/folder"
)

// Places in the sandbox.
const (
	workspace     = "/tmp_workspace"
	results       = workspace + "/results"
	placeSources  = workspace + "/clawbench/sources"
	placeSkills   = "/root/skills"
	placeServices = "/opt/clawbench/.harness/services"
	placeSolution = "/solution"
)

// made are the folders that the benchmark's runner makes in every sandbox, before
// the services of a task start. Those write to logs.
var made = []string{results, workspace + "/clawbench", placeSources, workspace + "/clawbench/logs", workspace + "/clawbench/runtime", placeSkills}

// Names among the files of a task.
const (
	dirReferences = "references"
	dirSources    = "sources"
	dirSkills     = "skills"
	dirServices   = "services"
	filePrivacy   = ".privacy"
	envFile       = "privacy/env.env" // in the supervisor's view: the variables of .privacy, with values
	rubric        = dirReferences + "/eval_rule.md"
	snapshots     = "_snapshot.json"
)

// snapshotMode is the name in .privacy of a task that can use copies of live sites.
const snapshotMode = "SNAPSHOT_MODE"

// A solution is not part of the published layout: solution is the name of its
// folder among the resources, and solve is what runs it.
const (
	solution = "solution"
	solve    = "solve.sh"
)

// A turn in which nothing happens for so many seconds ends, at its start and later.
const (
	startup = 180
	stall   = 600
)

// oneshotTime bounds a service that prepares something.
const oneshotTime = 1200 * time.Second

// builder makes a task of its file and its folder.
type builder struct {
	document.Reader

	dir      string // of the dataset, absolute
	root     *os.Root
	options  task.Options
	settings Config
	files    *folder.Files
	private  []string // names in .privacy
	keys     keys
	t        task.Task
}

func (b *builder) build(ctx context.Context) error {
	data, err := b.read(b.File)
	if err != nil {
		return err
	}
	if b.files, err = folder.ScanParts(ctx, b.root, injectionOf(b.File)); err != nil {
		return err
	}
	if err = b.privacy(); err != nil {
		return err
	}
	top := b.YAML(data)
	if top == nil {
		return nil
	}
	b.keys = all(top, b.settings.Snapshot, slices.Contains(b.private, snapshotMode))
	category, id := path.Base(path.Dir(b.File)), strings.TrimSuffix(path.Base(b.File), extension)
	b.keys.check(top, category, id)
	env := b.env()
	b.t = task.Task{
		Name: category + "/" + id, Format: Name, Dir: b.dir, File: b.File, Metadata: b.keys.metadata,
		Labels:      task.Labels{Category: category},
		Environment: task.Environment{OS: "linux", Image: b.settings.Image, Workdir: workspace, Network: task.Network{Mode: task.NetworkPublic}},
		Mode:        task.ModeCopies,
		Interaction: &task.Interaction{
			MaxFollowUps: b.keys.followUps, Total: seconds(b.keys.total), Charged: []string{"turn", "copy", "wait"},
			After: task.AfterEnds, OnUserError: task.FixedLine, Reduce: task.ReduceMax, Persona: b.keys.policy,
		},
		Success: task.Success{Score: "passed", AtLeast: &passes},
		Paths:   task.Paths{Folders: made},
		Stages: []task.Stage{{
			Name:      "main",
			Agent:     task.Phase{Time: seconds(b.keys.turn), Startup: seconds(startup), Stall: seconds(stall), Env: env, EnvFile: envFile},
			Verifiers: b.keys.supervise(),
			Artifacts: []task.Artifact{{Source: results, To: "results", Audience: []task.Role{task.RoleVerifier, task.RoleUser}}},
		}},
	}
	if b.settings.JudgeImage != "" {
		b.t.Stages[0].VerifyIn = &task.Environment{OS: "linux", Image: b.settings.JudgeImage, Workdir: workspace, Network: task.Network{Mode: task.NetworkNone}}
	}
	if !b.keys.copies {
		b.t.Interaction.Hold = task.HoldCopy // live sites drop a browser that stands still
	}
	b.references(top)
	sources := b.sources(top)
	for i := range b.keys.services {
		b.service(&b.keys.services[i], env)
	}
	b.serviceFiles()
	b.Problems = append(b.Problems, b.files.Problems...)
	if b.t.Digest, err = b.files.Digest(ctx, b.File, data); err == nil {
		err = cmp.Or(b.skills(ctx), b.solution(ctx))
	}
	var fromImage []string
	for _, s := range b.t.Skills {
		fromImage = append(fromImage, s.FromImage...)
	}
	b.t.Stages[0].Instruction = []task.Part{{Text: b.keys.instruction(sources, fromImage)}}
	b.Problems = append(b.Problems, b.files.Contents...)
	return err
}

// solution adds what the oracle runs, if the dataset says where solutions are and
// has one of this task.
func (b *builder) solution(ctx context.Context) error {
	if b.settings.Solutions == "" {
		return nil
	}
	at := folderOf(filepath.ToSlash(filepath.Clean(b.settings.Solutions)), b.File)
	own, err := folder.Scan(ctx, b.root, at)
	if err != nil || own.ByPath[solve] == nil {
		return err
	}
	b.t.Stages[0].Reference = &task.Reference{Resource: solution, Argv: []string{"sh", path.Join(placeSolution, solve)}}
	return b.beside(ctx, own, task.Resource{Name: solution, Audience: []task.Role{task.RoleOracle}, Place: placeSolution, Phase: task.PlaceTurn})
}

// beside adds a folder of the dataset that is not among the task's files.
func (b *builder) beside(ctx context.Context, own *folder.Files, r task.Resource) (err error) {
	r.Path, r.Folder, r.Entries = own.Top, true, own.Entries(folder.Whole, func(string) bool { return true })
	b.t.Resources = append(b.t.Resources, r)
	b.t.Digest, err = own.Digest(ctx, b.t.Digest, nil)
	b.Problems = append(append(b.Problems, own.Problems...), own.Contents...)
	return err
}

func seconds(n int) task.Duration { return task.Duration(time.Duration(n) * time.Second) }

// passes is the score "passed" of an attempt that passed. The verifier of the
// result returns it; the best score of a round alone decides nothing.
var passes = 1.0

// references adds what only the supervisor sees.
func (b *builder) references(t *document.Table) {
	named := false
	for _, r := range b.keys.references {
		if p := b.path(r, dirReferences); p != "" {
			named = named || p == rubric || p == dirReferences
			b.resource(task.Resource{Name: p, Audience: []task.Role{task.RoleVerifier}, Entries: b.all(p)})
		}
	}
	n := b.files.ByPath[rubric]
	switch {
	case !named || n == nil:
		t.Bad("references", "The rubric is missing", "references must have %s, which says how the result is judged.", rubric)
	case !n.Mode.IsRegular():
		t.Bad("references", "The rubric is not a file", "%s must be a file, not a folder or a link.", rubric)
	}
}

// path returns the path, among the task's files, of an entry of a list; empty: there
// is none, which is reported. The published tasks leave out the folder of the list:
// "x" is sources/x. "sources/x" is the same.
func (b *builder) path(e document.Text, within string) string {
	if leaves(e.Value) {
		b.Bad(e.Path, "Path leaves the task's files", "%q: write a relative path without \"..\".", e.Value)
		return ""
	}
	p := b.among(e.Value, within)
	if p == "" {
		b.Bad(e.Path, "File is missing", "There is no %s in %s.", inFolder(e.Value, within), b.files.Top)
	}
	return p
}

// among is path for a name that does not leave the files and need not be there.
func (b *builder) among(name, within string) string {
	for _, p := range []string{path.Join(within, name), inFolder(name, within)} {
		if b.files.ByPath[p] != nil {
			return p
		}
	}
	return ""
}

// inFolder returns the path of a name that may begin with its folder.
func inFolder(name, within string) string {
	return path.Join(within, strings.TrimPrefix(path.Clean(name)+"/", within+"/"))
}

// leaves reports whether a path is not a relative path of a file or folder below.
func leaves(p string) bool {
	return p == "" || path.IsAbs(p) || slices.Contains(strings.Split(p, "/"), "..") || path.Clean(p) == "."
}

// resource adds a file of the task's files, by its name there, or a folder with the
// given entries.
func (b *builder) resource(r task.Resource) {
	for i := range b.t.Resources {
		if b.t.Resources[i].Name == r.Name {
			return
		}
	}
	r.Path = path.Join(b.files.Top, r.Name)
	if r.Folder = b.files.IsDir(r.Name); r.Folder && len(r.Entries) == 0 && r.Place != "" {
		return // there is nothing to place
	}
	b.t.Resources = append(b.t.Resources, r)
}

// all returns all that is in a folder; of a file, nothing.
func (b *builder) all(dir string) []task.Entry {
	return b.files.Entries(dir, func(string) bool { return true })
}

// sources adds what the agent works on, all of the folder, and reports whether there
// is anything.
func (b *builder) sources(t *document.Table) bool {
	for _, s := range b.keys.sources {
		b.path(s, dirSources)
	}
	if !b.files.IsDir(dirSources) {
		return false
	}
	if len(b.keys.sources) == 0 {
		t.R.Warn("sources", "Files that no key names", "%s/%s has files, and the agent gets them.", b.files.Top, dirSources)
	}
	// In a live run a copy of what the sites hold would be the answer.
	live := slices.Contains(b.private, snapshotMode) && !b.keys.copies
	entries := b.files.Entries(dirSources, func(p string) bool {
		return !live || !slices.ContainsFunc(strings.Split(p, "/"), func(name string) bool { return strings.HasSuffix(name, snapshots) })
	})
	b.resource(task.Resource{Name: dirSources, Audience: task.Public(), Place: placeSources, Phase: task.PlaceCreate, Entries: entries})
	return len(entries) > 0
}

// service adds a program beside the agent. Its files are added by serviceFiles.
func (b *builder) service(s *service, env task.Env) {
	if s.path == "" || s.start == "" {
		return // reported
	}
	if !idForm.MatchString(s.name) {
		s.at.Bad("name", "Not a name", "name is %q: use letters, digits, \".\", \"_\" and \"-\".", s.name)
		return
	}
	if leaves(s.path) {
		s.at.Bad("path", "Path leaves the task's files", "%q: write the path of a folder in %s/ without \"..\".", s.path, dirServices)
		return
	}
	s.path = path.Clean(s.path)
	if p := path.Join(dirServices, s.path); len(b.files.Below(p)) == 0 {
		s.at.Bad("path", "Service without files", "There is nothing in %s/%s.", b.files.Top, p)
		return
	}
	if slices.ContainsFunc(b.t.Services, func(t task.Service) bool { return t.Name == s.name }) {
		s.at.Bad("name", "Service is listed twice", "%q is the name of another one.", s.name)
		return
	}
	c := task.Command{Argv: []string{"sh", "-c", s.start}, Dir: path.Join(placeServices, b.keys.id, s.path), User: "root", Env: env}
	if s.oneshot {
		c.Time = task.Duration(oneshotTime)
	}
	b.t.Services = append(b.t.Services, task.Service{Name: s.name, Command: c, Oneshot: s.oneshot})
}

// serviceFiles adds the files of all services, which only root may read.
func (b *builder) serviceFiles() {
	if len(b.t.Services) == 0 {
		return
	}
	var own []string
	for _, s := range b.keys.services {
		own = append(own, s.path)
	}
	entries := b.files.Entries(dirServices, func(p string) bool {
		return slices.ContainsFunc(own, func(dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") })
	})
	for _, dir := range own {
		for ; dir != "."; dir = path.Dir(dir) {
			entries = append(entries, task.Entry{Path: dir, Folder: true, Mode: 0o700})
		}
	}
	for i := range entries {
		entries[i].Mode &= 0o700
	}
	slices.SortFunc(entries, func(a, b task.Entry) int { return strings.Compare(a.Path, b.Path) })
	b.resource(task.Resource{
		Name: dirServices, Place: path.Join(placeServices, b.keys.id), Phase: task.PlaceCreate,
		Entries: slices.CompactFunc(entries, func(a, b task.Entry) bool { return a.Path == b.Path }),
	})
}

var variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// privacy reads the names of variables that the task needs.
func (b *builder) privacy() error {
	if b.files.ByPath[filePrivacy] == nil {
		return nil
	}
	file := path.Join(b.files.Top, filePrivacy)
	data, err := b.read(file)
	data, marked := folder.Unmarked(file, data)
	if marked != nil {
		b.Problems = append(b.Problems, *marked)
	}
	for n, line := range strings.Split(string(data), "\n") {
		name := strings.TrimSpace(line)
		switch {
		case name == "" || strings.HasPrefix(name, "#"):
		case !variableForm.MatchString(name):
			b.Problems = append(b.Problems, task.Problem{
				File: file, Line: n + 1, Column: 1, Severity: task.Error, Summary: "Not the name of a variable",
				Detail: "A line has the name of one variable of the host, and no value.",
			})
		default:
			b.private = append(b.private, name)
		}
	}
	return err
}

// env returns the variables of the agent and of the services: those of the host that
// the task names. Whether it uses copies of live sites is a setting of the dataset, and
// with copies it needs no key of a live site.
func (b *builder) env() task.Env {
	if len(b.private) == 0 {
		return nil
	}
	env := task.Env{}
	for _, name := range b.private {
		switch {
		case name == snapshotMode && b.keys.copies:
			env[name] = task.Value{Text: "1"}
		case name == snapshotMode:
			env[name] = task.Value{Text: "0"}
		case !b.keys.copies:
			env[name] = task.Value{Host: name}
		}
	}
	return env
}

// read returns a file of YAML or text. A link is refused.
func (b *builder) read(name string) ([]byte, error) {
	if fi, err := b.root.Lstat(name); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return folder.Read(b.root, name, document.MaxSize)
}
