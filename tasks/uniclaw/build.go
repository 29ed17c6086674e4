package uniclaw

import (
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

// Names among the files of a task.
const (
	dirReferences = "references"
	dirSources    = "sources"
	dirSkills     = "skills"
	dirServices   = "services"
	filePrivacy   = ".privacy"
	rubric        = dirReferences + "/eval_rule.md"
	snapshots     = "_snapshot.json"
)

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
	keys     keys
	t        task.Task
}

func (b *builder) build(ctx context.Context) error {
	data, err := read(b.root, b.File)
	if err != nil {
		return err
	}
	if b.files, err = folder.ScanParts(ctx, b.root, injectionOf(b.File)); err != nil {
		return err
	}
	top := b.Parse(data)
	if top == nil {
		return nil
	}
	b.keys = all(top, b.settings.Snapshot)
	category, id := path.Base(path.Dir(b.File)), strings.TrimSuffix(path.Base(b.File), extension)
	b.keys.check(top, category, id)
	b.t = task.Task{
		Name: category + "/" + id, Format: Name, Dir: b.dir, File: b.File, Metadata: b.keys.metadata(),
		Labels:      task.Labels{Category: category},
		Environment: task.Environment{OS: "linux", Image: b.settings.Image, Workdir: workspace, Network: task.Network{Mode: task.NetworkPublic}},
		Mode:        task.ModeCopies,
		Interaction: &task.Interaction{
			MaxFollowUps: b.keys.followUps, Total: seconds(b.keys.total), Charged: []string{"turn", "copy", "wait"},
			After: task.AfterEnds, Reduce: task.ReduceMax, Persona: b.keys.policy,
		},
		Success: task.Success{Score: "passed", AtLeast: &passes},
		Stages: []task.Stage{{
			Name: "main", Instruction: []task.Part{{Text: b.keys.instruction(b.settings.Snapshot)}},
			Agent:     task.Phase{Time: seconds(b.keys.turn), Startup: seconds(startup), Stall: seconds(stall)},
			Verifiers: b.keys.supervise(),
			Artifacts: []task.Artifact{{Source: results, To: "results", Audience: []task.Role{task.RoleVerifier, task.RoleUser}}},
		}},
	}
	if b.settings.JudgeImage != "" {
		b.t.Stages[0].VerifyIn = &task.Environment{OS: "linux", Image: b.settings.JudgeImage, Workdir: workspace, Network: task.Network{Mode: task.NetworkNone}}
	}
	if !b.settings.Snapshot {
		b.t.Interaction.Hold = task.HoldCopy // live sites drop a browser that stands still
	}
	b.references(top)
	b.sources(top)
	b.skills(top)
	for i := range b.keys.services {
		b.service(&b.keys.services[i])
	}
	b.serviceFiles()
	if err = b.privacy(); err != nil {
		return err
	}
	b.Problems = append(b.Problems, b.files.Problems...)
	if b.t.Digest, err = b.files.Digest(ctx, b.File, data); err == nil {
		err = b.solution(ctx)
	}
	b.Problems = append(b.Problems, b.files.Pointers...)
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
	b.t.Resources = append(b.t.Resources, task.Resource{
		Name: solution, Path: at, Audience: []task.Role{task.RoleOracle}, Place: placeSolution, Phase: task.PlaceTurn, Folder: true,
		Entries: own.Entries(folder.Whole, func(string) bool { return true }),
	})
	b.t.Stages[0].Reference = &task.Reference{Resource: solution, Argv: []string{"sh", path.Join(placeSolution, solve)}}
	b.t.Digest, err = own.Digest(ctx, b.t.Digest, nil)
	b.Problems = append(append(b.Problems, own.Problems...), own.Pointers...)
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
			b.resource(task.Resource{Name: p, Audience: []task.Role{task.RoleVerifier}})
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

// path checks a path of a list, which lies in one folder of the task's files;
// empty: it is wrong, which is reported.
func (b *builder) path(e document.Text, within string) string {
	p := path.Clean(e.Value)
	switch {
	case leaves(e.Value):
		b.Report(task.Error, document.Position(e.Node), e.Path, "Path leaves the task's files", fmt.Sprintf("%q: write a relative path without \"..\".", e.Value))
	case p != within && !strings.HasPrefix(p, within+"/"):
		b.Report(task.Error, document.Position(e.Node), e.Path, "Path is in another folder", fmt.Sprintf("%q: it must be in %s/.", e.Value, within))
	case b.files.ByPath[p] == nil:
		b.Report(task.Error, document.Position(e.Node), e.Path, "File is missing", fmt.Sprintf("There is no %s in %s.", p, b.files.Top))
	default:
		return p
	}
	return ""
}

// leaves reports whether a path is no relative path of a file or folder below.
func leaves(p string) bool {
	return p == "" || path.IsAbs(p) || slices.Contains(strings.Split(p, "/"), "..") || path.Clean(p) == "."
}

// resource adds a file or folder of the task's files, by its name there.
func (b *builder) resource(r task.Resource) {
	for i := range b.t.Resources {
		if b.t.Resources[i].Name == r.Name {
			return
		}
	}
	r.Path = path.Join(b.files.Top, r.Name)
	if r.Folder = b.files.ByPath[r.Name].Mode.IsDir(); r.Folder && r.Entries == nil {
		r.Entries = b.files.Entries(r.Name, func(string) bool { return true })
	}
	b.t.Resources = append(b.t.Resources, r)
}

// sources adds what the agent works on: all of the folder.
func (b *builder) sources(t *document.Table) {
	for _, s := range b.keys.sources {
		b.path(s, dirSources)
	}
	if !b.files.IsDir(dirSources) {
		return
	}
	if len(b.keys.sources) == 0 {
		t.R.Report(task.Warning, nil, "sources", "Files that no key names", fmt.Sprintf("%s/%s has files, and the agent gets them.", b.files.Top, dirSources))
	}
	b.resource(task.Resource{
		Name: dirSources, Audience: task.Public(), Place: placeSources, Phase: task.PlaceCreate,
		Entries: b.files.Entries(dirSources, func(p string) bool { return b.settings.Snapshot || !strings.HasSuffix(p, snapshots) }),
	})
}

// skills adds the skills that come with the task. Other names are skills that the
// agent has anyway.
func (b *builder) skills(*document.Table) {
	for _, s := range b.keys.skills {
		switch {
		case !strings.Contains(s.Value, "/") && idForm.MatchString(s.Value):
		case strings.Count(s.Value, "/") > 1:
			b.Report(task.Error, document.Position(s.Node), s.Path, "Not a skill", fmt.Sprintf("%q: write %s/NAME for a folder of the task's files, or the name of a skill that the agent has.", s.Value, dirSkills))
		default:
			if p := b.path(s, dirSkills); p != "" && p != dirSkills {
				b.resource(task.Resource{
					Name: p, Audience: []task.Role{task.RoleAgent, task.RoleVerifier}, Place: path.Join(placeSkills, path.Base(p)), Phase: task.PlaceCreate,
				})
				b.t.Skills = []task.Skill{{Dir: placeSkills}}
			}
		}
	}
}

// service adds a program beside the agent. Its files are added by serviceFiles.
func (b *builder) service(s *service) {
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
	c := task.Command{Argv: []string{"sh", "-c", s.start}, Dir: path.Join(placeServices, b.keys.id, s.path), User: "root"}
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

// privacy adds the variables of the host that the agent gets.
func (b *builder) privacy() error {
	if b.files.ByPath[filePrivacy] == nil {
		return nil
	}
	file := path.Join(b.files.Top, filePrivacy)
	data, err := read(b.root, file)
	if err != nil {
		return err
	}
	env := task.Env{}
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
			env[name] = task.Value{Host: name}
		}
	}
	if len(env) > 0 {
		b.t.Stages[0].Agent.Env = env
	}
	return nil
}

// read returns a file of YAML or text. A link is refused.
func read(root *os.Root, name string) ([]byte, error) {
	if fi, err := root.Lstat(name); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return folder.Read(root, name, document.MaxSize)
}
