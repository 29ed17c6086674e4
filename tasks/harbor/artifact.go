package harbor

import (
	"path"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/berth-eval/berth/plugins/task"
)

// artifacts reads paths, and tables of source, destination, exclude, service.
func (d *decoder) artifacts(t *table) []task.Artifact {
	v, ok := t.get("artifacts")
	if !ok {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		t.wrong("artifacts", "a list", v)
		return nil
	}
	var out []task.Artifact
	for i, e := range list {
		p := index(t.at("artifacts"), i)
		var a task.Artifact
		switch e := e.(type) {
		case string:
			a.Source = e
		case map[string]any:
			sub := &table{r: d.reader, path: p, m: e}
			a.Source = d.required(sub, "source")
			a.To = sub.str("destination", "")
			a.Exclude = sub.strings("exclude")
			a.Service = service(sub.str("service", ""))
			sub.done()
		default:
			d.bad(p, "Wrong type", "%s must be a path or a table, got %s.", p, show(e))
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
	before := len(d.problems)
	source := strings.Split(a.Source, "/")
	switch {
	case a.Source == "":
		d.bad(p, "Artifact without a source", "Write the path of a file or folder in the sandbox.")
	case slices.Contains(source, "..") || strings.ContainsRune(a.Source, 0):
		d.bad(p, "Malformed source", "%q must not have \"..\" in it.", a.Source)
	case a.Service != "" && !path.IsAbs(a.Source):
		d.bad(p, "Source is not absolute", "%q is relative, which is possible in the main container only.", a.Source)
	}
	if a.To != "" {
		switch to := path.Clean(a.To); {
		case path.IsAbs(a.To), strings.Contains(a.To, `\`), slices.Contains(strings.Split(a.To, "/"), ".."), strings.ContainsRune(a.To, 0):
			d.bad(p, "Malformed destination", "%q must be relative, without \"..\" and backslashes.", a.To)
		case to == "manifest.json":
			d.bad(p, "Destination is taken", "manifest.json lists the artifacts.")
		case to == ".":
			d.bad(p, "Malformed destination", "%q names no file or folder.", a.To)
		default:
			a.To = to
		}
	}
	return len(d.problems) == before
}

// overlap warns of two artifacts that land on the same path.
func (d *decoder) overlap(p string, a task.Artifact, before []task.Artifact) {
	to := lands(a)
	for _, b := range before {
		other := lands(b)
		if to == other || strings.HasPrefix(to, other+"/") || strings.HasPrefix(other, to+"/") {
			d.warn(p, "Artifacts overlap", "%q and %q land on the same place: the first one keeps it.", b.Source, a.Source)
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

// devices are names that Windows keeps for itself.
var devices = []string{
	"con", "prn", "aux", "nul", "conin$", "conout$", "com¹", "com²", "com³", "lpt¹", "lpt²", "lpt³", "com1", "com2", "com3", "com4", "com5", "com6", "com7", "com8", "com9",
	"lpt1", "lpt2", "lpt3", "lpt4", "lpt5", "lpt6", "lpt7", "lpt8", "lpt9",
}

// stepName checks that a name may be a folder anywhere, and that no other step
// has one that some file system takes for the same.
func (d *decoder) stepName(t *table, name string, before []stepConfig) {
	stem, _, _ := strings.Cut(strings.ToLower(name), ".")
	stem = strings.TrimRight(stem, " ")
	switch {
	case len(name) > 255:
		d.bad(t.at("name"), "Step name is too long", "It has %d bytes, 255 are allowed.", len(name))
	case strings.TrimSpace(name) == "" || name == "." || name == ".." || strings.ContainsAny(name, "<>:\"/\\|?*") || strings.ContainsFunc(name, unicode.IsControl):
		d.bad(t.at("name"), "Malformed step name", "%q cannot be the name of a folder: leave out < > : \" / \\ | ? * and control characters.", name)
	case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " "):
		d.bad(t.at("name"), "Malformed step name", "%q ends with a dot or a space.", name)
	case slices.Contains(devices, stem):
		d.bad(t.at("name"), "Malformed step name", "%q is the name of a device on some systems.", name)
	}
	for _, b := range before {
		if folded(b.name) == folded(name) {
			d.bad(t.at("name"), "Step name is used twice", "%q and %q are the same name on some file systems.", b.name, name)
			return
		}
	}
}

func folded(s string) string { return cases.Fold().String(norm.NFC.String(s)) }
