package uniclaw

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
	"github.com/berth-eval/berth/tasks/internal/folder"
)

// baseSkills are the skills that the benchmark's images have for every task. A task
// may name them, too.
var baseSkills = []string{"agent-browser-control", "apt-package-manager", "desktop-control", "duckduckgo-search", "linux-gui-control", "web-search"}

// skills adds the skills that the task names. They are in one folder of the sandbox
// for every agent.
func (b *builder) skills(ctx context.Context) error {
	if len(b.keys.skills) > 0 {
		b.t.Skills = []task.Skill{{Dir: placeSkills}}
	}
	for _, s := range b.keys.skills {
		if leaves(s.Value) {
			b.path(s, dirSkills) // reports it
			continue
		}
		p := b.among(s.Value, dirSkills)
		name := path.Base(inFolder(s.Value, dirSkills))
		place := path.Join(placeSkills, name)
		bad := func(summary, format string, args ...any) {
			b.Bad(s.Path, summary, format, args...)
		}
		switch other := slices.IndexFunc(b.t.Resources, func(r task.Resource) bool { return r.Place == place }); {
		case other >= 0 && b.t.Resources[other].Name != p:
			bad("Two skills of one name", "%q would be placed in %s, as %s is. Rename its folder.", s.Value, place, b.t.Resources[other].Name)
		case p == "" && slices.Contains(baseSkills, name) && inFolder(s.Value, dirSkills) == path.Join(dirSkills, name):
			if err := b.baseSkill(ctx, s, name); err != nil {
				return err
			}
		case p == "":
			bad("Skill is missing", "There is no %s in %s, and %q is not one of the base skills: %s.", inFolder(s.Value, dirSkills), b.files.Top, s.Value, strings.Join(baseSkills, ", "))
		case p == dirSkills || len(b.files.Below(p)) == 0:
			bad("Not a skill", "%s must be a folder with the files of one skill.", p)
		default:
			b.resource(task.Resource{
				Name: p, Audience: []task.Role{task.RoleAgent, task.RoleVerifier}, Place: place, Phase: task.PlaceCreate, Entries: b.all(p),
			})
		}
	}
	return nil
}

// baseSkill adds a skill of the folder that the dataset keeps them in. If it has none
// of that name, the image or the agent must have it: no agent works without it.
func (b *builder) baseSkill(ctx context.Context, s document.Text, name string) error {
	at := path.Join(path.Clean(b.settings.BaseSkills), name)
	own, err := folder.Scan(ctx, b.root, at)
	if err != nil {
		return err
	}
	place := path.Join(placeSkills, name)
	if len(own.Below(folder.Whole)) > 0 {
		return b.beside(ctx, own, task.Resource{
			Name: path.Join(dirSkills, name), Audience: []task.Role{task.RoleAgent, task.RoleVerifier}, Place: place, Phase: task.PlaceCreate,
		})
	}
	b.Warn(s.Path, "Base skill is not placed", "There is no %s in the dataset: the image must have %s, or the agent a block skill %q.", at, place, name)
	b.t.Skills[0].FromImage = append(b.t.Skills[0].FromImage, name)
	return nil
}
