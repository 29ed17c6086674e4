package tasktest

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/task"
)

func loadClauses() []conformance.Clause[Subject] {
	return []conformance.Clause[Subject]{
		{
			Name: "a good folder is detected and loaded", Guards: "a task that no dataset can contain",
			Run: goodIsLoaded,
		},
		{
			Name: "what is loaded obeys the rules of plugins/task", Guards: "a core that trusts a malformed task",
			Run: rulesAreObeyed,
		},
		{
			Name: "every resource is there", Guards: "an attempt that fails when its files are copied",
			Run: resourcesAreThere,
		},
		{
			Name: "the same folder elsewhere is the same task", Guards: "results that cannot be compared because a path is part of the task",
			Run: placeDoesNotMatter,
		},
		{
			Name: "JSON keeps everything", Guards: "a task that changes on its way to another process",
			Run: jsonKeepsEverything,
		},
		{
			Name: "a changed file changes the digest", Guards: "resume that takes results of another task for its own",
			Run: digestFollowsContent,
		},
		{
			Name: "loading changes nothing", Guards: "a read-only dataset that cannot be used, or a digest that is never the same",
			Run: loadingChangesNothing,
		},
		{
			Name: "a broken folder is detected and reported", Guards: "a dataset that gets smaller without a word",
			Run: brokenIsDetected,
		},
		{
			Name: "a Finder finds the task, and its files", Guards: "a task that is edited during a run without notice",
			Run: finderFinds,
		},
		{
			Name: "sixteen at once get the same", Guards: "state that loads share",
			Run: sixteenAtOnce,
		},
	}
}

func goodIsLoaded(ctx context.Context, t *conformance.T, s Subject) {
	for _, dir := range s.Good {
		if !s.Format.Detect(dir) {
			t.Errorf("Detect(%s) is false", dir)
		}
		if got := s.load(ctx, t, dir); !filepath.IsAbs(got.Dir) {
			t.Errorf("Dir is %q, want it absolute", got.Dir)
		}
	}
}

func rulesAreObeyed(ctx context.Context, t *conformance.T, s Subject) {
	for _, dir := range s.Good {
		for _, p := range s.load(ctx, t, dir).Validate() {
			t.Errorf("%s: %s", dir, p)
		}
	}
}

func resourcesAreThere(ctx context.Context, t *conformance.T, s Subject) {
	for _, dir := range s.Good {
		resourcesExist(t, s.load(ctx, t, dir))
	}
}

func placeDoesNotMatter(ctx context.Context, t *conformance.T, s Subject) {
	for _, dir := range s.Good {
		here, there := s.load(ctx, t, dir), s.load(ctx, t, clone(t, dir))
		if a, b := text(t, here), text(t, there); a != b {
			t.Errorf("%s and its copy differ:\n%s\n%s", dir, a, b)
		}
	}
}

func jsonKeepsEverything(ctx context.Context, t *conformance.T, s Subject) {
	for _, dir := range s.Good {
		before := s.load(ctx, t, dir)
		raw, err := json.Marshal(before)
		back := &task.Task{}
		if err == nil {
			err = json.Unmarshal(raw, back)
		}
		if err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		back.Dir, back.File = before.Dir, before.File
		if !reflect.DeepEqual(before, back) {
			t.Errorf("%s changed (a list that is empty must be nil, JSON compact):\n%#v\n%#v", dir, before, back)
		}
	}
}

func digestFollowsContent(ctx context.Context, t *conformance.T, s Subject) {
	dir := clone(t, s.Good[0])
	before := s.load(ctx, t, dir)
	r, e := folderResource(t, before)
	file := before.HostFile(r, e)
	if e.Text != "" {
		file = task.Files(s.Format, before)[0]
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if s.Edit == nil {
		s.Edit = func(b []byte) []byte { return append(b, '\n') }
	}
	write(t, file, s.Edit(data))
	if after := s.load(ctx, t, dir); after.Digest == before.Digest {
		t.Errorf("the digest is still %s after %s has changed", after.Digest, file)
	}
}

func loadingChangesNothing(ctx context.Context, t *conformance.T, s Subject) {
	dir := clone(t, s.Good[0])
	before := listing(t, dir)
	s.load(ctx, t, dir)
	if after := listing(t, dir); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

func brokenIsDetected(ctx context.Context, t *conformance.T, s Subject) {
	for _, dir := range s.Broken {
		brokenIsReported(ctx, t, s, dir)
	}
}

func finderFinds(ctx context.Context, t *conformance.T, s Subject) {
	f, ok := s.Format.(task.Finder)
	if !ok {
		return
	}
	for _, dir := range append(slices.Clone(s.Good), s.Broken...) {
		if found, err := f.Find(ctx, dir, s.Options); err != nil || !slices.Contains(found, s.File) || !slices.IsSorted(found) {
			t.Errorf("Find(%s) = %q, %v; want %s, sorted", dir, found, err, s.File)
		}
	}
	tk := s.load(ctx, t, s.Good[0])
	if tk.File != s.File {
		t.Errorf("the task is %q, want %q", tk.File, s.File)
	}
	files := f.Files(tk)
	has := func(p string) bool {
		return slices.ContainsFunc(files, func(f string) bool { return p == f || strings.HasPrefix(p, f+"/") })
	}
	for i := range tk.Resources {
		if tk.Resources[i].Path == "" {
			continue // the format made it
		}
		if !has(tk.HostFile(&tk.Resources[i], nil)) {
			t.Errorf("Files = %q lacks resource %s", files, tk.Resources[i].Name)
		}
	}
	if !has(tk.HostPath(tk.File)) {
		t.Errorf("Files = %q lacks the task itself", files)
	}
}

func sixteenAtOnce(ctx context.Context, t *conformance.T, s Subject) {
	want := text(t, s.load(ctx, t, s.Good[0]))
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			got, problems, err := s.read(ctx, s.Good[0], s.Options)
			if err != nil || got == nil || text(t, got) != want {
				t.Errorf("got %v, %v, %v; want the same as alone", got, problems, err)
			}
		})
	}
	wg.Wait()
}

func resourcesExist(t *conformance.T, tk *task.Task) {
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
			if err != nil || (e.Link == "" && fi.IsDir() != e.Folder) || (e.Link == "" && !e.Folder && fi.Size() != e.Size) {
				t.Errorf("entry %s of resource %s: %v; want it as described: %+v", e.Path, r.Name, err, *e)
			}
		}
	}
}

func brokenIsReported(ctx context.Context, t *conformance.T, s Subject, dir string) {
	if !s.Format.Detect(dir) {
		t.Errorf("Detect(%s) is false", dir)
	}
	got, problems, err := s.read(ctx, dir, s.Options)
	if err != nil || got != nil || !task.Broken(problems) {
		t.Errorf("Load(%s) = %v, %v, %v; want no task and a problem that is an error", dir, got, problems, err)
	}
	for _, p := range problems {
		if p.Summary == "" || strings.HasSuffix(p.Summary, ".") || filepath.IsAbs(p.File) {
			t.Errorf("%s: problem %+v needs a summary without a full stop and a file within the folder", dir, p)
		}
	}
}

// listing returns every path of a folder with the data that reveals a change.
func listing(t *conformance.T, dir string) string {
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		b.WriteString(p + " " + fi.Mode().String() + " " + fi.ModTime().String() + "\n")
		return nil
	})
	if err != nil {
		t.Fatalf("list %s: %v", dir, err)
	}
	return b.String()
}

func write(t *conformance.T, file string, data []byte) {
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatalf("%v", err)
	}
}
