package harbor

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
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
	if _, err := b.root.Lstat(fileIgnore); err == nil {
		b.warn(fileIgnore, "File without effect", "It counts in tests/ and solution/, and in those of steps.")
	}
	var files []string
	for i := range b.nodes {
		p := b.nodes[i].path
		if path.Base(p) != fileIgnore || !b.isFile(p) {
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
func (b *builder) ignored(n *node) bool {
	return b.leftOut(n.path, n.mode.IsDir()) || (n.target != "" && b.leftOut(n.target, !n.toFile))
}

func (b *builder) leftOut(p string, isDir bool) bool {
	return path.Base(p) == fileIgnore || (filtered.MatchString(p) && b.ignore.under(p, isDir))
}

// leaving reports the links that lead out of the task's folder, unless nobody
// will ever look at them.
func (b *builder) leaving() {
	for i := range b.nodes {
		if n := &b.nodes[i]; n.leaves != "" && !b.ignored(n) {
			b.bad(n.path, "Link leaves the task's folder", "%s", n.leaves)
		}
	}
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
	for _, n := range b.below(r.Path) {
		if b.ignored(&n) || n.leaves != "" {
			continue
		}
		rel := strings.TrimPrefix(n.path, r.Path+"/")
		switch {
		case n.mode.IsDir():
			if len(b.below(n.path)) == 0 {
				out = append(out, task.Entry{Path: rel, Folder: true, Mode: perm(n.mode)})
			}
		case n.link == "":
			out = append(out, b.file(rel, n))
		default:
			out = append(out, b.linked(r, rel, n)...)
		}
	}
	slices.SortFunc(out, func(x, y task.Entry) int { return strings.Compare(x.Path, y.Path) })
	return out
}

// linked returns the entries of a link.
func (b *builder) linked(r *task.Resource, rel string, n node) []task.Entry {
	if to := path.Join(path.Dir(n.path), n.link); to == r.Path || strings.HasPrefix(to, r.Path+"/") {
		return []task.Entry{{Path: rel, Link: n.link, Mode: 0o777}}
	}
	target := b.byPath[n.target]
	switch {
	case target == nil:
		b.bad(n.path, "Link cannot be followed", "It leads to %q, which is not part of the task. Copy the file.", n.link)
		return nil
	case target.mode.IsRegular():
		e := b.file(rel, *target)
		e.From = target.path
		return []task.Entry{e}
	case target.mode.IsDir() && !strings.HasPrefix(r.Path+"/", target.path+"/"):
		return b.linkedFolder(rel, target)
	default:
		b.bad(n.path, "Link cannot be followed", "It leads to %q, which is itself a link or holds this one. Link to the file itself.", n.link)
		return nil
	}
}

func (b *builder) linkedFolder(rel string, target *node) []task.Entry {
	var out []task.Entry
	for _, n := range b.below(target.path) {
		if b.ignored(&n) {
			continue
		}
		sub := path.Join(rel, strings.TrimPrefix(n.path, target.path+"/"))
		switch {
		case n.link != "":
			b.bad(n.path, "Link cannot be followed", "It lies in a folder that another link leads to. Copy the file.")
		case n.mode.IsRegular():
			e := b.file(sub, n)
			e.From = n.path
			out = append(out, e)
		}
	}
	return out
}

// file is the entry of a regular file. The scripts that the format runs are
// executable, whatever their mode on this disk.
func (b *builder) file(rel string, n node) task.Entry {
	mode := perm(n.mode)
	if rel == testScript(b.config.env.os) || rel == solveScript(b.config.env.os) {
		mode |= 0o111
	}
	return task.Entry{Path: rel, Mode: mode, Size: n.size}
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
