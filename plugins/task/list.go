package task

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// ListOptions select tasks of a dataset.
type ListOptions struct {
	Options
	// Include and Exclude are patterns as of path.Match. A pattern matches the
	// path of a task's folder below the dataset, the folder's name, or the
	// task's name; with a Finder also the path of a folder of tasks. Without Include all tasks are selected. Exclude wins over
	// Include.
	Include []string
	Exclude []string
}

// Listing is what a dataset's folder holds.
type Listing struct {
	// Items are the selected tasks sorted by path, including invalid ones.
	Items []Item
	// Unwanted are the paths of tasks that the patterns exclude.
	Unwanted []string
	// Other are the paths of folders that are not a task and contain none.
	Other []string
	// Deep are paths of folders that were not looked into, since they lie too
	// deep below the dataset.
	Deep []string
	// Problems are those of the dataset as a whole, as a Cataloger finds them.
	Problems []Problem
}

// Item is one task of a dataset.
type Item struct {
	// Path is slash-separated and relative to the dataset; "." when the
	// dataset's folder is itself the task.
	Path string
	// Dir is absolute: the task's folder, or the file that a Finder found.
	Dir string
	// Task is nil when it is not a valid task; Problems then say why.
	Task     *Task
	Problems []Problem

	file bool // a Finder found it
}

// Name is what reports call the item: the task's name, or else that of its
// folder, or of its file without the extension.
func (i *Item) Name() string {
	if i.Task != nil {
		return i.Task.Name
	}
	return i.base()
}

func (i *Item) base() string {
	name := filepath.Base(i.Dir)
	if i.file {
		name = strings.TrimSuffix(name, filepath.Ext(name))
	}
	return name
}

// MaxDepth bounds how deep below a dataset's folder tasks are looked for.
// Links to folders are followed in the first levels only: folders that lead to
// each other by links could be walked in too many ways.
const (
	MaxDepth  = 16
	linkDepth = 4
)

// List finds and loads the tasks of a dataset: root itself, or the folders
// below it, or what a Finder finds in them. It does not search inside tasks or
// hidden folders. An invalid task
// is an Item with its problems, and so is the second of two tasks with the same
// name. An error means that root cannot be read, that a pattern is malformed,
// or that a pattern of Include matches nothing.
func List(ctx context.Context, f Format, root string, o ListOptions) (Listing, error) {
	var l Listing
	for _, p := range slices.Concat(o.Include, o.Exclude) {
		if _, err := path.Match(p, ""); err != nil {
			return l, fmt.Errorf("pattern %q: %w", p, err)
		}
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		return l, err
	}
	o.Dataset = abs
	found, err := find(f, place{root: abs, rel: "."}, &l)
	if finder, ok := f.(Finder); ok && err == nil {
		found, err = within(ctx, finder, abs, found, o.Options)
	}
	if chooser, ok := f.(Chooser); ok && err == nil && !o.All {
		found, err = chooser.Choose(found, o.Options)
	}
	if err != nil {
		return l, err
	}
	items, err := load(ctx, f, abs, found, o.Options)
	if err != nil {
		return l, err
	}
	if c, ok := f.(Cataloger); ok && !o.All {
		l.Problems = c.Missing(abs, items)
	}
	used := make(map[string]bool)
	names := make(map[string]string)
	owners := ownersOf(items)
	for _, it := range items {
		if !wanted(&it, o, owners, used) {
			l.Unwanted = append(l.Unwanted, it.Path)
			continue
		}
		once(&it, names)
		l.Items = append(l.Items, it)
	}
	for word, patterns := range map[string][]string{"include": o.Include, "exclude": o.Exclude} {
		for _, p := range patterns {
			if !used[p] && (word == "include" || len(items) > 0) {
				return l, fmt.Errorf("%s %q matches no task of %s: it has %s%s", word, p, root, some(items), invalid(items))
			}
		}
	}
	return l, nil
}

// once marks the second task with the same name as invalid, because two trials
// would get the same id.
func once(it *Item, names map[string]string) {
	if it.Task == nil {
		return
	}
	first, ok := names[it.Task.Name]
	if !ok {
		names[it.Task.Name] = it.Path
		return
	}
	it.Problems = append(it.Problems, Problem{
		Severity: Error, Key: "name", Summary: "Task name is used twice",
		Detail: fmt.Sprintf("%q is also the name of the task in %s. Rename one of them.", it.Task.Name, first),
	})
	it.Task = nil
}

// place is a folder of a dataset with the folders above it.
type place struct {
	root, rel string
	above     []os.FileInfo // the folders that it is in, root first
}

// find returns the paths of task folders at or below p, sorted. It does not
// follow a link to a folder that contains the link: the tasks there are found
// anyway.
func find(f Format, p place, l *Listing) ([]string, error) {
	rel := p.rel
	dir := filepath.Join(p.root, filepath.FromSlash(rel))
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: make the folder readable for this user, or move it out of the dataset", err)
	}
	if err != nil {
		return nil, err
	}
	here, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(p.above, func(fi os.FileInfo) bool { return os.SameFile(fi, here) }) {
		return nil, nil
	}
	if f.Detect(dir) {
		return []string{rel}, nil
	}
	var found []string
	for _, e := range entries {
		sub := path.Join(rel, e.Name())
		if strings.HasPrefix(e.Name(), ".") || !isDir(p.root, sub, e) {
			continue
		}
		if depth := len(p.above) + 1; depth > MaxDepth || depth >= linkDepth && !e.IsDir() {
			l.Deep = append(l.Deep, sub)
			continue
		}
		below, err := find(f, place{p.root, sub, append(slices.Clip(p.above), here)}, l)
		if err != nil {
			return nil, err
		}
		found = append(found, below...)
	}
	if below := func(o string) bool { return strings.HasPrefix(o, rel+"/") }; len(found) == 0 && rel != "." &&
		!slices.ContainsFunc(l.Other, below) && !slices.ContainsFunc(l.Deep, below) {
		l.Other = append(l.Other, rel)
	}
	return found, nil
}

// within returns the tasks in these folders.
func within(ctx context.Context, f Finder, root string, folders []string, o Options) (found []string, err error) {
	for _, dir := range folders {
		paths, err := f.Find(ctx, filepath.Join(root, filepath.FromSlash(dir)), o)
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			found = append(found, path.Join(dir, p))
		}
	}
	return found, nil
}

// Enclosing returns the folder of a Finder's tasks in which dir lies, and the
// pattern of ListOptions.Include for what is at or below dir. ok is false if dir
// lies in none.
func Enclosing(f Format, dir string) (root, pattern string, ok bool) {
	if _, finder := f.(Finder); !finder {
		return "", "", false
	}
	rel := ""
	for range MaxDepth {
		up := filepath.Dir(dir)
		if up == dir {
			break
		}
		if rel = path.Join(filepath.Base(dir), rel); f.Detect(up) {
			return up, literal.Replace(rel), true
		}
		dir = up
	}
	return "", "", false
}

// literal makes a pattern of a path.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// isDir follows one link, so that a dataset may be a folder of links.
func isDir(root, rel string, e os.DirEntry) bool {
	if e.IsDir() {
		return true
	}
	if e.Type()&os.ModeSymlink == 0 {
		return false
	}
	fi, err := os.Stat(filepath.Join(root, filepath.FromSlash(rel)))
	return err == nil && fi.IsDir()
}

func load(ctx context.Context, f Format, root string, found []string, o Options) ([]Item, error) {
	items := make([]Item, len(found))
	_, finder := f.(Finder)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, rel := range found {
		g.Go(func() error {
			dir := filepath.Join(root, filepath.FromSlash(rel))
			t, ps, err := f.Load(ctx, dir, o)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				t = nil
				ps = append(ps, Problem{Severity: Error, Summary: "Task cannot be read", Detail: err.Error()})
			}
			items[i] = Item{Path: rel, Dir: dir, Task: t, Problems: ps, file: finder}
			return nil
		})
	}
	return items, g.Wait()
}

// ownersOf returns what the names of the valid tasks have before their last "/", in
// any order.
func ownersOf(items []Item) (owners []string) {
	for i := range items {
		if t := items[i].Task; t != nil && strings.Contains(t.Name, "/") && !slices.Contains(owners, path.Dir(t.Name)) {
			owners = append(owners, path.Dir(t.Name))
		}
	}
	return owners
}

// wanted applies the patterns and records which patterns of Include matched. The name
// of an invalid task is not known: it counts as named like the valid ones, so that a
// pattern does not leave it out because it is invalid.
func wanted(it *Item, o ListOptions, owners []string, used map[string]bool) bool {
	names := []string{it.Path, it.base()}
	for _, owner := range owners {
		if it.Task == nil {
			names = append(names, path.Join(owner, it.base()))
		}
	}
	for dir := path.Dir(it.Path); it.file && dir != "."; dir = path.Dir(dir) {
		names = append(names, dir) // a pattern may name a folder of tasks
	}
	if it.Task != nil {
		names = append(names, it.Task.Name)
	}
	match := func(pattern string) bool {
		if it.Task == nil && len(owners) == 0 {
			pattern = path.Base(pattern)
		}
		return slices.ContainsFunc(names, func(n string) bool {
			ok, err := path.Match(pattern, n)
			return err == nil && ok
		})
	}
	in := len(o.Include) == 0
	for _, p := range o.Include {
		if match(p) {
			in, used[p] = true, true
		}
	}
	for _, p := range o.Exclude {
		if match(p) {
			in, used[p] = false, true
		}
	}
	return in
}

// invalid is the end of an error about names, if invalid tasks may have them.
func invalid(items []Item) string {
	var bad []*Item
	for i := range items {
		if items[i].Task == nil {
			bad = append(bad, &items[i])
		}
	}
	for _, it := range bad {
		for _, p := range it.Problems {
			if p.Severity == Error {
				return fmt.Sprintf("; %d of them cannot be read, and their names are not known: %s: %s", len(bad), it.Path, p)
			}
		}
	}
	return ""
}

// some names up to five items.
func some(items []Item) string {
	if len(items) == 0 {
		return "no tasks"
	}
	var names []string
	for i := range items[:min(len(items), 5)] {
		names = append(names, items[i].Path)
	}
	s := strings.Join(names, ", ")
	if n := len(items) - len(names); n > 0 {
		s += fmt.Sprintf(" and %d more", n)
	}
	return s
}

// Foreign says which folders of a dataset of the format f hold tasks of another one of
// these formats, which are not among its items.
func (l *Listing) Foreign(root string, f Format, formats []Format) (found []string) {
	folders := []string{"."}
	for _, o := range l.Other { // the innermost ones
		for ; o != "." && !slices.Contains(folders, o); o = path.Dir(o) {
			folders = append(folders, o)
		}
	}
	slices.Sort(folders)
	for _, dir := range folders {
		for _, g := range formats {
			if g.Name() != f.Name() && g.Detect(filepath.Join(root, filepath.FromSlash(dir))) {
				found = append(found, fmt.Sprintf("%s holds tasks of the format %q, which are not in this dataset of the format %q", dir, g.Name(), f.Name()))
				break
			}
		}
	}
	return found
}
