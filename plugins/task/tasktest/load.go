package tasktest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/task"
)

type clause = conformance.Clause[Subject]

// good returns a clause about each good folder and the task in it.
func good(name, guards string, check func(t *conformance.T, s *Subject, dir string, tk *task.Task)) clause {
	return clause{Name: name, Guards: guards, Run: func(t *conformance.T, s Subject) {
		for _, dir := range s.Good {
			check(t, &s, dir, s.load(t, dir))
		}
	}}
}

var loadClauses = []clause{
	good("a good folder is detected and loaded", "a task that no dataset can contain", func(t *conformance.T, s *Subject, dir string, tk *task.Task) {
		if !s.Format.Detect(dir) {
			t.Errorf("Detect(%s) is false", dir)
		}
		if !filepath.IsAbs(tk.Dir) {
			t.Errorf("Dir is %q, want it absolute", tk.Dir)
		}
	}),
	good("what is loaded obeys the rules of plugins/task", "a core that trusts a malformed task", func(t *conformance.T, _ *Subject, dir string, tk *task.Task) {
		for _, p := range tk.Validate() {
			t.Errorf("%s: %s", dir, p)
		}
	}),
	good("every resource is there", "an attempt that fails when its files are copied", resourcesExist),
	good("the same folder elsewhere is the same task", "results that cannot be compared because a path is part of the task", func(t *conformance.T, s *Subject, dir string, tk *task.Task) {
		if a, b := text(t, tk), text(t, s.load(t, t.Copy(dir))); a != b {
			t.Errorf("%s and its copy differ:\n%s\n%s", dir, a, b)
		}
	}),
	good("JSON keeps everything", "a task that changes on its way to another process", func(t *conformance.T, _ *Subject, dir string, tk *task.Task) {
		back := &task.Task{}
		t.Must(dir, json.Unmarshal([]byte(text(t, tk)), back))
		back.Dir, back.File = tk.Dir, tk.File
		if !reflect.DeepEqual(tk, back) {
			t.Errorf("%s changed (a list that is empty must be nil, JSON compact):\n%#v\n%#v", dir, tk, back)
		}
	}),
	conformance.New("a changed file changes the digest", "resume that takes results of another task for its own", func(t *conformance.T, s Subject) {
		before := s.load(t, t.Copy(s.Good[0]))
		r, e := folderResource(t, before)
		file := before.HostFile(r, e)
		if e.Text != "" {
			file = task.Files(s.Format, before)[0]
		}
		data, err := os.ReadFile(file)
		t.Must("read a file of the task", err)
		if s.Edit == nil {
			s.Edit = func(b []byte) []byte { return append(b, '\n') }
		}
		write(t, file, s.Edit(data))
		if after := s.load(t, before.Dir); after.Digest == before.Digest {
			t.Errorf("the digest is still %s after %s has changed", after.Digest, file)
		}
	}),
	conformance.New("loading changes nothing", "a read-only dataset that cannot be used, or a digest that is never the same", func(t *conformance.T, s Subject) {
		dir := t.Copy(s.Good[0])
		t.Unchanged(dir, func() { s.load(t, dir) })
	}),
	conformance.New("a broken folder is detected and reported", "a dataset that gets smaller without a word", func(t *conformance.T, s Subject) {
		for _, dir := range s.Broken {
			if !s.Format.Detect(dir) {
				t.Errorf("Detect(%s) is false", dir)
			}
			got, problems, err := s.read(t, dir)
			if err != nil || got != nil || !task.Broken(problems) {
				t.Errorf("Load(%s) = %v, %v, %v; want no task and a problem that is an error", dir, got, problems, err)
			}
			for _, p := range problems {
				if p.Summary == "" || strings.HasSuffix(p.Summary, ".") || filepath.IsAbs(p.File) {
					t.Errorf("%s: problem %+v needs a summary without a full stop and a file within the folder", dir, p)
				}
			}
		}
	}),
	conformance.New("a Finder finds the task, and its files", "a task that is edited during a run without notice", finderFinds),
	conformance.New("sixteen at once get the same", "state that loads share", func(t *conformance.T, s Subject) {
		want := s.load(t, s.Good[0])
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if got, problems, err := s.read(t, s.Good[0]); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("got %v, %v, %v; want the same as alone", got, problems, err)
				}
			})
		}
		wg.Wait()
	}),
}

func finderFinds(t *conformance.T, s Subject) {
	f, ok := s.Format.(task.Finder)
	if !ok {
		return
	}
	for _, dir := range append(slices.Clone(s.Good), s.Broken...) {
		if found, err := f.Find(t.Context(), dir, s.Options); err != nil || !slices.Contains(found, s.File) || !slices.IsSorted(found) {
			t.Errorf("Find(%s) = %q, %v; want %s, sorted", dir, found, err, s.File)
		}
	}
	tk := s.load(t, s.Good[0])
	if tk.File != s.File {
		t.Errorf("the task is %q, want %q", tk.File, s.File)
	}
	files := f.Files(tk)
	for what, path := range paths(tk) {
		if !slices.ContainsFunc(files, func(f string) bool { return path == f || strings.HasPrefix(path, f+"/") }) {
			t.Errorf("Files = %q lacks %s", files, what)
		}
	}
}

// paths are the files of the task itself and of its resources that the format did
// not make.
func paths(tk *task.Task) map[string]string {
	out := map[string]string{"the task itself": tk.HostPath(tk.File)}
	for i := range tk.Resources {
		if r := &tk.Resources[i]; r.Path != "" {
			out["resource "+r.Name] = tk.HostFile(r, nil)
		}
	}
	return out
}

func resourcesExist(t *conformance.T, _ *Subject, _ string, tk *task.Task) {
	for i := range tk.Resources {
		r := &tk.Resources[i]
		if r.Path == "" {
			continue // the format made it
		}
		fi, err := os.Stat(tk.HostFile(r, nil))
		if err != nil || fi.IsDir() != r.Folder {
			t.Errorf("resource %s: %v; want it there, folder: %v", r.Name, err, r.Folder)
		}
		for j := range r.Entries {
			e := &r.Entries[j]
			fi, err := os.Lstat(tk.HostFile(r, e))
			if err != nil || e.Link == "" && (fi.IsDir() != e.Folder || !e.Folder && fi.Size() != e.Size) {
				t.Errorf("entry %s of resource %s: %v; want it as described: %+v", e.Path, r.Name, err, *e)
			}
		}
	}
}

func write(t *conformance.T, file string, data []byte) {
	t.Must("write", os.WriteFile(file, data, 0o600))
}
