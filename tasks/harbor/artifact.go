package harbor

import (
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
)

// artifacts reads paths, and tables of source, destination, exclude, service.
func (d *decoder) artifacts(t *document.Table) []task.Artifact {
	var out []task.Artifact
	for _, e := range t.List("artifacts") {
		p := e.Path
		var a task.Artifact
		switch e := e.Value.(type) {
		case string:
			a.Source = e
		case map[string]any:
			sub := d.In(p, e)
			a.Source = sub.Required("source")
			a.To = sub.Text("destination", "")
			a.Exclude = sub.Strings("exclude")
			a.Service = service(sub.Text("service", ""))
			sub.Done()
		default:
			d.Bad(p, "Wrong type", "%s must be a path or a table, got %s.", p, d.Show(e))
			continue
		}
		if d.artifact(p, &a) {
			d.overlap(p, a, out)
			out = append(out, a)
		}
	}
	return out
}

func (d *decoder) artifact(p string, a *task.Artifact) bool {
	before := len(d.Problems)
	source := strings.Split(a.Source, "/")
	switch {
	case a.Source == "":
		d.Bad(p, "Artifact without a source", "Write the path of a file or folder in the sandbox.")
	case slices.Contains(source, "..") || strings.ContainsRune(a.Source, 0):
		d.Bad(p, "Malformed source", "%q must not have \"..\" in it.", a.Source)
	case a.Service != "" && !path.IsAbs(a.Source):
		d.Bad(p, "Source is not absolute", "%q is relative, which is possible in the main container only.", a.Source)
	}
	if a.To != "" {
		switch to := path.Clean(a.To); {
		case path.IsAbs(a.To), strings.Contains(a.To, `\`), slices.Contains(strings.Split(a.To, "/"), ".."), strings.ContainsRune(a.To, 0):
			d.Bad(p, "Malformed destination", "%q must be relative, without \"..\" and backslashes.", a.To)
		case to == "manifest.json":
			d.Bad(p, "Destination is taken", "manifest.json lists the artifacts.")
		case to == ".":
			d.Bad(p, "Malformed destination", "%q names no file or folder.", a.To)
		default:
			a.To = to
		}
	}
	return len(d.Problems) == before
}

// overlap warns of two artifacts that land on the same path.
func (d *decoder) overlap(p string, a task.Artifact, before []task.Artifact) {
	to := lands(a)
	for _, b := range before {
		other := lands(b)
		if to == other || strings.HasPrefix(to, other+"/") || strings.HasPrefix(other, to+"/") {
			d.Warn(p, "Artifacts overlap", "%q and %q land on the same place: the first one keeps it.", b.Source, a.Source)
			return
		}
	}
}

func lands(a task.Artifact) string {
	if a.To != "" {
		return a.To
	}
	return strings.TrimPrefix(path.Clean(a.Source), "/")
}

// stepName checks that a name may be a folder, and that no other step has it.
func (d *decoder) stepName(t *document.Table, name string, before []stepConfig) {
	switch {
	case len(name) > 255:
		d.Bad(t.At("name"), "Step name is too long", "It has %d bytes, 255 are allowed.", len(name))
	case strings.TrimSpace(name) == "" || strings.ContainsAny(name, "<>:\"/\\|?*") || strings.ContainsFunc(name, unicode.IsControl):
		d.Bad(t.At("name"), "Malformed step name", "%q cannot be the name of a folder: leave out < > : \" / \\ | ? * and control characters.", name)
	case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " "):
		d.Bad(t.At("name"), "Malformed step name", "%q ends with a dot or a space.", name)
	case slices.ContainsFunc(before, func(b stepConfig) bool { return b.name == name }):
		d.Bad(t.At("name"), "Step name is used twice", "%q is the name of a step before it.", name)
	}
}
