package gauntlet

import (
	"fmt"
	"os"
	"regexp"
	"slices"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
	"github.com/berth-eval/berth/tasks/internal/folder"
)

// idForm is how ids are written, and labelForm their middle.
var (
	idForm    = regexp.MustCompile(`^tc_([a-z0-9]+)_([0-9]{3,9})$`)
	labelForm = regexp.MustCompile(`^[a-z0-9]+$`)
)

// readList reads a list, and finds its entries. It reports what is wrong with the
// list as a whole, and not what is wrong with its tasks.
func readList(root *os.Root, file string, lenient bool) *list {
	l := &list{Reader: document.Reader{File: file, Lenient: lenient}}
	text, err := folder.Read(root, file, maxList)
	if p, refused := folder.Problem(err); refused {
		l.Problems = append(l.Problems, p)
		return l
	}
	if err != nil {
		l.Bad("", "List cannot be read", "%s.", err)
		return l
	}
	l.parse(text)
	return l
}

func (l *list) parse(text []byte) {
	top := l.YAML(text)
	if top == nil {
		return
	}
	l.version = scalar(top.Get("version"))
	top.Known = append(top.Known, "name", "description") // texts for people
	entries := top.List("tasks")
	switch {
	case len(entries) == 0 && !task.Broken(l.Problems):
		top.Bad("tasks", "List has no tasks", "Write them under tasks, as a list.")
	case len(entries) > maxTasks:
		top.Bad("tasks", "List is too long", "It has %d tasks, and at most %d are read.", len(entries), maxTasks)
	default:
		for i, e := range entries {
			l.add(i+1, e)
		}
	}
	top.Done()
}

// add notes an entry. A second one with the same id is noted with the first one.
func (l *list) add(n int, e document.Entry) {
	it := item{name: fmt.Sprintf("entry-%d", n), at: e, id: idOf(e.Value)}
	if idForm.MatchString(it.id) {
		it.name = it.id
	}
	if first := l.find(it.name); first != nil {
		first.more = append(first.more, e)
		return
	}
	l.items = append(l.items, it)
}

func (l *list) find(name string) *item {
	i := slices.IndexFunc(l.items, func(it item) bool { return it.name == name })
	if i < 0 {
		return nil
	}
	return &l.items[i]
}

// idOf returns the id of an entry; empty: it has none.
func idOf(v any) string {
	values, _ := v.(map[string]any)
	return scalar(values["id"])
}

// scalar returns a text or a number as text; empty: it is neither.
func scalar(v any) string {
	switch v := v.(type) {
	case document.Number:
		return v.Text
	case string:
		return v
	}
	return ""
}
