package harbor

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
	"github.com/berth-eval/berth/tasks/internal/document"
)

// fileDataset lists the tasks of a dataset with their digests.
const fileDataset = "dataset.toml"

// maxDataset is the largest one that is read, in bytes.
const maxDataset = 16 << 20

// published compares the task with the digest that the file of its dataset has of it.
// That file lies beside the folders of the tasks, or beside the folder that they are
// in. A difference is a warning: authors change a task and forget its digest.
func (b *builder) published() []task.Problem {
	for _, up := range []string{"..", "../.."} {
		r := &document.Reader{File: path.Join(up, fileDataset)}
		data, err := untrusted.Read(filepath.Join(b.dir, filepath.FromSlash(up)), fileDataset, maxDataset)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			r.Warn("", "File cannot be read", "%v.", untrusted.Below(err))
			return r.Problems
		case bytes.Contains(data, []byte(b.t.Digest)):
			return nil
		}
		b.listed(r.TOML(data))
		for i := range r.Problems {
			r.Problems[i].Severity = task.Warning
		}
		return r.Problems
	}
	return nil
}

// Missing names the tasks that the file of a dataset lists and that are neither among
// the found ones nor elsewhere beside that file. The file lies in the folder of the
// dataset, or beside it.
func (Format) Missing(dir string, found []task.Item) []task.Problem {
	if len(found) == 1 && found[0].Path == "." {
		return nil // one task is no dataset
	}
	has := map[string]bool{}
	for i := range found {
		has[filepath.Base(found[i].Dir)], has[found[i].Name()] = true, true
	}
	for _, up := range []string{".", ".."} {
		beside := filepath.Join(dir, up)
		data, err := untrusted.Read(beside, fileDataset, maxDataset)
		if err != nil {
			continue // there is none; one that cannot be read is reported with the tasks
		}
		r := &document.Reader{File: path.Join(up, fileDataset)}
		list := r.TOML(data).Tables("tasks")
		r.Problems = nil // a wrong type is reported with the tasks
		for _, t := range list {
			name := t.Text("name", "")
			if base := path.Base(name); name != "" && !has[name] && !has[base] && !exists(beside, base) && !below(beside, base) {
				r.Warn(t.At("name"), "Listed task is missing", "There is no folder of %q. The dataset has it: take its files from where the dataset is published, or remove the entry.", name)
			}
		}
		return r.Problems
	}
	return nil
}

// below reports whether a folder of dir has something of this name.
func below(dir, name string) bool {
	list, _ := os.ReadDir(dir) // what cannot be read has nothing
	return slices.ContainsFunc(list, func(e fs.DirEntry) bool { return e.IsDir() && exists(filepath.Join(dir, e.Name()), name) })
}

// listed compares the task with the line about it.
func (b *builder) listed(list *document.Table) {
	for _, t := range list.Tables("tasks") {
		name, digest := t.Text("name", ""), t.Text("digest", "")
		if name != b.t.Name && path.Base(name) != filepath.Base(b.dir) || digest == "" {
			continue
		}
		t.R.Warn(t.At("digest"), "Task is not the one that was published",
			"Its files give the digest %s, and %s has %s. They were changed, or some are not there, as in a checkout without Git LFS: take the published ones, or write the new digest.",
			b.t.Digest, fileDataset, digest)
		return
	}
}
