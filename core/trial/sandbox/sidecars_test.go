package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
)

// What runs is what the compose specification says: an entrypoint of the task
// takes the place of the image's, with its command.
func TestWhatASidecarRuns(t *testing.T) {
	image := environment.ImageFacts{Entrypoint: []string{"/entry"}, Cmd: []string{"serve"}}
	for _, tt := range []struct {
		entrypoint, command, want []string
	}{
		{nil, nil, []string{"/entry", "serve"}},
		{nil, []string{"other"}, []string{"/entry", "other"}},
		{[]string{"/mine"}, nil, []string{"/mine"}},
		{[]string{"/mine"}, []string{"x"}, []string{"/mine", "x"}},
	} {
		c := &Sidecar{Sandbox: &Sandbox{Made: environment.Sandbox{Image: image}}, task: &task.Sidecar{Entrypoint: tt.entrypoint, Command: tt.command}}
		if got := c.argv(); !slices.Equal(got, tt.want) {
			t.Errorf("entrypoint %q, command %q: %q, want %q", tt.entrypoint, tt.command, got, tt.want)
		}
	}
}

func TestWhoWaitsForMain(t *testing.T) {
	e := &task.Environment{DependsOn: map[string]string{"db": task.StateCompleted}, Sidecars: []task.Sidecar{
		{Name: "db"},
		{Name: "web", DependsOn: map[string]string{"db": task.StateHealthy, task.MainContainer: task.StateStarted}},
		{Name: "proxy", DependsOn: map[string]string{"web": task.StateStarted}},
	}}
	s := &Sandbox{task: e}
	for i := range e.Sidecars {
		s.Sidecars = append(s.Sidecars, &Sidecar{task: &e.Sidecars[i]})
	}
	for name, want := range map[string]bool{"db": false, "web": true, "proxy": true, "main": false} {
		if got := s.waitsForMain(name, 0); got != want {
			t.Errorf("%s waits for main: %v", name, got)
		}
	}
	if !s.awaited("db", task.StateCompleted) || !s.awaited("db", task.StateHealthy) || s.awaited("web", task.StateHealthy) {
		t.Error("who is awaited in which state is wrong")
	}
}

// What was made for a sandbox that cannot be created is removed.
func TestAFailedCreateLeavesNoFolders(t *testing.T) {
	dir := t.TempDir()
	testlevel.Must(t, os.Chmod(dir, 0o700))
	sandboxd := filepath.Join(dir, "sandboxd")
	testlevel.Must(t, os.WriteFile(sandboxd, nil, 0o755))
	broken := errors.New("broken")
	o := Order{Folder: filepath.Join(dir, "b"), Sandboxd: sandboxd, Task: &task.Environment{Sidecars: []task.Sidecar{{Name: "db"}}}}
	_, err := Create(o, func(environment.Spec) (environment.Sandbox, error) { return environment.Sandbox{}, broken })
	if left, _ := os.ReadDir(dir); !errors.Is(err, broken) || len(left) != 1 {
		t.Errorf("got %v, left %v", err, left)
	}
}
