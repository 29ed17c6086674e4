package tasktest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/task"
)

func hostileClauses() []conformance.Clause[Subject] {
	return []conformance.Clause[Subject]{
		{
			Name: "an empty folder is not detected", Guards: "folders that are counted as broken tasks",
			Run: emptyIsNotDetected,
		},
		{
			Name: "a folder that is not there is an error", Guards: "a wrong path that looks like a broken task",
			Run: goneIsAnError,
		},
		{
			Name: "a link out of the folder is reported, not followed", Guards: "a dataset that carries files of the host into a sandbox",
			Run: linkOutIsReported,
		},
		{
			Name: "a pipe in the folder is reported, and does not hang", Guards: "loading that blocks on a named pipe",
			Run: pipeIsReported,
		},
		{
			Name: "host variables are asked for only when allowed", Guards: "a task that reads a key of the host",
			Run: variablesAreAskedFor,
		},
		{
			Name: "an agent sees neither tests nor solution", Guards: "a verifier that can be passed by copying the answer",
			Run: agentSeesNoAnswer,
		},
		{
			Name: "a context that has ended ends a load", Guards: "Ctrl-C that waits for a large dataset",
			Run: contextEndsALoad,
		},
	}
}

func emptyIsNotDetected(_ context.Context, t *conformance.T, s Subject) {
	if dir := t.TempDir(); s.Format.Detect(dir) {
		t.Errorf("Detect(%s) is true", dir)
	}
}

func goneIsAnError(ctx context.Context, t *conformance.T, s Subject) {
	dir := filepath.Join(t.TempDir(), "gone")
	if got, _, err := s.read(ctx, dir, s.Options); err == nil || got != nil {
		t.Errorf("Load(%s) = %v, %v; want an error", dir, got, err)
	}
}

func linkOutIsReported(ctx context.Context, t *conformance.T, s Subject) {
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, []byte("marker"))
	for _, target := range []string{secret, "../../../../../../../../../../" + secret} {
		linkOut(ctx, t, s, target)
	}
}

func pipeIsReported(ctx context.Context, t *conformance.T, s Subject) {
	dir := clone(t, s.Good[0])
	if err := syscall.Mkfifo(s.planted(ctx, t, dir, "pipe"), 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	if got, problems, err := s.read(ctx, dir, s.Options); got != nil || err != nil || !task.Broken(problems) {
		t.Errorf("got %v, %v, %v; want a problem", got, problems, err)
	}
	err := filepath.WalkDir(s.Good[0], func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(s.Good[0], path)
		if err != nil {
			return err
		}
		dir := clone(t, s.Good[0])
		at := filepath.Join(dir, name)
		if err = errors.Join(os.Remove(at), syscall.Mkfifo(at, 0o600)); err != nil {
			return err
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _, _ = s.read(ctx, dir, s.Options)
		}()
		select {
		case <-done:
		case <-time.After(conformance.Patience(5 * time.Second)):
			t.Errorf("with a pipe in the place of %s the load does not end", name)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
}

func variablesAreAskedFor(ctx context.Context, t *conformance.T, s Subject) {
	var mu sync.Mutex
	o := s.Options
	o.LookupEnv = func(name string) (string, bool) {
		mu.Lock()
		defer mu.Unlock()
		if !o.EnvAllowed(name) {
			t.Errorf("%s was asked for", name)
		}
		return "marker", true
	}
	for _, dir := range append(s.Good, s.Broken...) {
		if got, _, err := s.read(ctx, dir, o); err == nil && got != nil && strings.Contains(text(t, got), "marker") {
			t.Errorf("%s: the value of a host variable is in the task", dir)
		}
	}
}

func agentSeesNoAnswer(ctx context.Context, t *conformance.T, s Subject) {
	for _, dir := range s.Good {
		tk := s.load(ctx, t, dir)
		for i := range tk.Stages {
			agentSees(t, tk, &tk.Stages[i])
		}
	}
}

func contextEndsALoad(ctx context.Context, t *conformance.T, s Subject) {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := s.read(ended, s.Good[0], s.Options); err == nil {
		t.Errorf("no error")
	}
}

// planted returns a path among the files of a task where something hostile can be
// put: a new name in its folder resource, or, if the format makes the files of that,
// the name of a file that it makes them from, which is removed.
func (s *Subject) planted(ctx context.Context, t *conformance.T, dir, name string) string {
	tk := s.load(ctx, t, dir)
	r, e := folderResource(t, tk)
	if e.Text == "" {
		return filepath.Join(dir, filepath.FromSlash(r.Path), name)
	}
	file := task.Files(s.Format, tk)[0]
	if err := os.Remove(file); err != nil {
		t.Fatalf("%v", err)
	}
	return file
}

func linkOut(ctx context.Context, t *conformance.T, s Subject, target string) {
	dir := clone(t, s.Good[0])
	link := s.planted(ctx, t, dir, "aaa-link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatalf("%v", err)
	}
	got, problems, err := s.read(ctx, dir, s.Options)
	if err != nil || got != nil {
		t.Errorf("with a link to %s: got %v, %v; want a problem", target, got, err)
	}
	for _, p := range problems {
		if strings.HasSuffix(p.File, filepath.Base(link)) && p.Severity == task.Error {
			return
		}
	}
	t.Errorf("no problem names the link to %s: %v", target, problems)
}

func agentSees(t *conformance.T, tk *task.Task, st *task.Stage) {
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
