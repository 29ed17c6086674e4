package tasktest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/task"
)

var hostileClauses = []clause{
	conformance.New("an empty folder is not detected", "folders that are counted as broken tasks", func(t *conformance.T, s Subject) {
		if dir := t.TempDir(); s.Format.Detect(dir) {
			t.Errorf("Detect(%s) is true", dir)
		}
	}),
	conformance.New("a folder that is not there is an error", "a wrong path that looks like a broken task", func(t *conformance.T, s Subject) {
		dir := filepath.Join(t.TempDir(), "gone")
		if got, _, err := s.read(t, dir); err == nil || got != nil {
			t.Errorf("Load(%s) = %v, %v; want an error", dir, got, err)
		}
	}),
	conformance.New("a link out of the folder is reported, not followed",
		"a dataset that carries files of the host into a sandbox", func(t *conformance.T, s Subject) {
			outside := t.TempDir()
			t.Write(outside, map[string]string{"secret": "marker"})
			secret := filepath.Join(outside, "secret")
			for _, target := range []string{secret, "../../../../../../../../../../" + secret} {
				s.planted(t, "aaa-link", func(path string) error { return os.Symlink(target, path) })
			}
		}),
	conformance.New("a pipe in the folder is reported, and does not hang", "loading that blocks on a named pipe", func(t *conformance.T, s Subject) {
		pipe := func(path string) error { return syscall.Mkfifo(path, 0o600) }
		s.planted(t, "pipe", pipe)
		s.each(t, func(dir, name, at string, _ []byte) {
			t.Must("make a pipe", errors.Join(os.Remove(at), pipe(at)))
			t.Ends("the load with a pipe in the place of "+name, 5*time.Second, func() { _, _, _ = s.read(t, dir) })
		})
	}),
	conformance.New("host variables are asked for only when allowed", "a task that reads a key of the host", variablesAreAskedFor),
	good("an agent sees neither tests nor solution", "a verifier that can be passed by copying the answer", agentSees),
	conformance.New("a context that has ended ends a load", "Ctrl-C that waits for a large dataset", func(t *conformance.T, s Subject) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := s.Format.Load(ended, filepath.Join(s.Good[0], filepath.FromSlash(s.File)), s.Options); err == nil {
			t.Errorf("no error")
		}
	}),
}

func variablesAreAskedFor(t *conformance.T, s Subject) {
	var mu sync.Mutex
	allowed := s.Options.EnvAllowed
	s.Options.LookupEnv = func(name string) (string, bool) {
		mu.Lock()
		defer mu.Unlock()
		if !allowed(name) {
			t.Errorf("%s was asked for", name)
		}
		return "marker", true
	}
	for _, dir := range slices.Concat(s.Good, s.Broken) {
		if got, _, err := s.read(t, dir); err == nil && got != nil && strings.Contains(text(t, got), "marker") {
			t.Errorf("%s: the value of a host variable is in the task", dir)
		}
	}
}

// planted puts something hostile among the files of a task: under a new name in its
// folder resource, or, if the format makes the files of that, in the place of a
// file that it makes them from. It wants a problem that names the file.
func (s *Subject) planted(t *conformance.T, name string, plant func(path string) error) {
	dir := t.Copy(s.Good[0])
	tk := s.load(t, dir)
	r, e := folderResource(t, tk)
	at := filepath.Join(dir, filepath.FromSlash(r.Path), name)
	if e.Text != "" {
		at = task.Files(s.Format, tk)[0]
		t.Must("remove a file", os.Remove(at))
	}
	t.Must("plant a file", plant(at))
	got, problems, err := s.read(t, dir)
	if got != nil || err != nil || !slices.ContainsFunc(problems, func(p task.Problem) bool {
		return strings.HasSuffix(p.File, filepath.Base(at)) && p.Severity == task.Error
	}) {
		t.Errorf("with %s: got %v, %v, %v; want a problem that names it", at, got, problems, err)
	}
}

func agentSees(t *conformance.T, _ *Subject, _ string, tk *task.Task) {
	for i := range tk.Stages {
		st := &tk.Stages[i]
		v := tk.View(task.RoleAgent, st.Name)
		for _, r := range v.Resources {
			if r.Phase == task.PlaceVerify {
				t.Errorf("stage %s: the agent sees %s, which is placed for verification", st.Name, r.Name)
			}
			if st.Reference != nil && r.Name == st.Reference.Resource {
				t.Errorf("stage %s: the agent sees %s, the solution", st.Name, r.Name)
			}
		}
		if len(v.Stages) != 1 || v.Stages[0].Reference != nil || v.Stages[0].Verifiers != nil {
			t.Errorf("stage %s: the agent's view has more than its instruction: %+v", st.Name, v.Stages)
		}
	}
}
