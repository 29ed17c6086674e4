package sandbox

import (
	"slices"
	"testing"

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
		c := &side{Sandbox: &Sandbox{Made: environment.Sandbox{Image: image}}, task: &task.Sidecar{Entrypoint: tt.entrypoint, Command: tt.command}}
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
	s := &Sidecars{task: e}
	for i := range e.Sidecars {
		s.all = append(s.all, &side{task: &e.Sidecars[i]})
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

func TestATaskOfOneContainerHasNone(t *testing.T) {
	var s *Sidecars
	if started, err := s.Before(t.Context(), nil); err != nil || started != nil || s.Sandboxes() != nil || s.Connect(t.Context()) != nil {
		t.Errorf("got %v, %v", started, err)
	}
	if kept, err := s.Keep(t.Context(), nil, nil); err != nil || kept != nil {
		t.Errorf("kept %v, %v", kept, err)
	}
}

func TestAContainerThatWasNotMadeIsNamed(t *testing.T) {
	e := &task.Environment{Sidecars: []task.Sidecar{{Name: "db"}}}
	if _, err := NewSidecars(e, environment.Sandbox{}, nil, nil); err == nil || err.Error() != `the environment made no container "db"` {
		t.Errorf("got %v", err)
	}
}
