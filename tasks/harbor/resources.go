package harbor

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
	taskfolder "github.com/berth-eval/berth/tasks/internal/folder"
)

const (
	fileDocker   = "Dockerfile"
	fileCompose  = "docker-compose.yaml"
	otherCompose = "docker-compose.yml"
	fileIgnore   = ".harborignore"
	mainService  = "main"
)

// filtered are the folders whose files an .harborignore may leave out.
var filtered = regexp.MustCompile(`^(?:steps/[^/]+/)?(?:tests|solution)(?:/|$)`)

// harborignore collects the ignore files of the task, from the top down.
func (b *builder) harborignore() (*ignore, error) {
	ig := &ignore{}
	if _, err := b.Root.Lstat(fileIgnore); err == nil {
		b.warn(fileIgnore, "File without effect", "It counts in tests/ and solution/, and in those of steps.")
	}
	var files []string
	for _, n := range b.Below(taskfolder.Whole) {
		p := n.Path
		if path.Base(p) != fileIgnore || !b.IsFile(p) {
			continue
		}
		if !filtered.MatchString(p) {
			b.warn(p, "File without effect", "It counts in tests/ and solution/, and in those of steps.")
			continue
		}
		files = append(files, p)
	}
	slices.SortStableFunc(files, func(x, y string) int { return strings.Count(x, "/") - strings.Count(y, "/") })
	for _, file := range files {
		data, err := b.read(file)
		if err != nil {
			return nil, err
		}
		dir := path.Dir(file)
		for line := range strings.SplitSeq(string(data), "\n") {
			ig.add(dir, line)
		}
	}
	return ig, nil
}

// ignored says whether a file or folder never reaches a sandbox: an ignore
// file itself, and what one leaves out, by its own name or by that of what a
// link leads to.
func (b *builder) ignored(n *taskfolder.Node) bool {
	return b.leftOut(n.Path, n.Mode.IsDir()) || (n.Target != "" && b.leftOut(n.Target, !n.ToFile))
}

func (b *builder) leftOut(p string, isDir bool) bool {
	return path.Base(p) == fileIgnore || (filtered.MatchString(p) && b.ignore.under(p, isDir))
}

// resource adds one, with the entries of its folder.
func (b *builder) resource(r *task.Resource) {
	if r.Folder {
		r.Entries = b.entries(r)
	}
	b.t.Resources = append(b.t.Resources, *r)
}

// entries lists what of a folder goes into views and sandboxes: its files, its
// links where they stay in the folder, what they lead to where they do not,
// and its empty folders.
func (b *builder) entries(r *task.Resource) []task.Entry {
	var out []task.Entry
	for _, n := range b.Below(r.Path) {
		if b.ignored(&n) || n.Leaves != "" {
			continue
		}
		rel := strings.TrimPrefix(n.Path, r.Path+"/")
		switch {
		case n.Mode.IsDir():
			if len(b.Below(n.Path)) == 0 {
				out = append(out, task.Entry{Path: rel, Folder: true, Mode: perm(n.Mode)})
			}
		case n.Link == "":
			out = append(out, b.file(rel, n))
		default:
			out = append(out, b.linked(r, rel, n)...)
		}
	}
	slices.SortFunc(out, func(x, y task.Entry) int { return strings.Compare(x.Path, y.Path) })
	return out
}

// linked returns the entries of a link.
func (b *builder) linked(r *task.Resource, rel string, n taskfolder.Node) []task.Entry {
	if to := path.Join(path.Dir(n.Path), n.Link); to == r.Path || strings.HasPrefix(to, r.Path+"/") {
		return []task.Entry{{Path: rel, Link: n.Link, Mode: 0o777}}
	}
	target := b.ByPath[n.Target]
	switch {
	case target == nil:
		b.bad(n.Path, "Link cannot be followed", "It leads to %q, which is not part of the task. Copy the file.", n.Link)
		return nil
	case target.Mode.IsRegular():
		e := b.file(rel, *target)
		e.From = target.Path
		return []task.Entry{e}
	case target.Mode.IsDir() && !strings.HasPrefix(r.Path+"/", target.Path+"/"):
		return b.linkedFolder(rel, target)
	default:
		b.bad(n.Path, "Link cannot be followed", "It leads to %q, which is itself a link or holds this one. Link to the file itself.", n.Link)
		return nil
	}
}

func (b *builder) linkedFolder(rel string, target *taskfolder.Node) []task.Entry {
	var out []task.Entry
	for _, n := range b.Below(target.Path) {
		if b.ignored(&n) {
			continue
		}
		sub := path.Join(rel, strings.TrimPrefix(n.Path, target.Path+"/"))
		switch {
		case n.Link != "":
			b.bad(n.Path, "Link cannot be followed", "It lies in a folder that another link leads to. Copy the file.")
		case n.Mode.IsRegular():
			e := b.file(sub, n)
			e.From = n.Path
			out = append(out, e)
		}
	}
	return out
}

// file is the entry of a regular file. The scripts that the format runs are
// executable, whatever their mode on this disk.
func (b *builder) file(rel string, n taskfolder.Node) task.Entry {
	mode := perm(n.Mode)
	if rel == testScript(b.config.env.os) || rel == solveScript(b.config.env.os) {
		mode |= 0o111
	}
	return task.Entry{Path: rel, Mode: mode, Size: n.Size}
}

func perm(m fs.FileMode) uint32 { return uint32(m.Perm()) }

// services checks the sidecars that hooks and artifacts name.
func (b *builder) services() {
	if b.t.Environment.Compose != "" {
		return // what it says is not known, and that is a problem already
	}
	known := []string{mainService}
	for i := range b.t.Environment.Sidecars {
		known = append(known, b.t.Environment.Sidecars[i].Name)
	}
	check := func(what, name string) {
		if name != "" && !slices.Contains(known, name) {
			b.bad(fileConfig, "Unknown service", "%s names the service %q. Known: %s.", what, name, strings.Join(known, ", "))
		}
	}
	for i := range b.t.Stages {
		for _, h := range b.t.Stages[i].Hooks {
			check("A collect hook", h.Service)
		}
		for _, a := range b.t.Stages[i].Artifacts {
			check(fmt.Sprintf("The artifact %q", a.Source), a.Service)
		}
	}
}
