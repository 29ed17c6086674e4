package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/environment"
)

// unable is an engine that starts no container.
type unable struct{ Engine }

var errRuntime = errors.New("runc: setrlimit: operation not permitted")

func (unable) Create(context.Context, Container) error      { return nil }
func (unable) Start(context.Context, string) error          { return errRuntime }
func (unable) State(context.Context, string) (State, error) { return State{}, ErrAbsent }
func (unable) Remove(context.Context, string) error         { return ErrAbsent }
func (unable) Facts(context.Context) (f Facts, _ error)     { return f, nil }
func (unable) LoadsOCI() bool                               { return false }

// The error of a container that does not start says what the engine said, and where
// there is advice.
func TestAContainerThatDoesNotStartNamesTheAdviceOfDoctor(t *testing.T) {
	for remedy, want := range map[string]string{
		"":       "unable start: runc: setrlimit: operation not permitted: berth doctor shows what containers need of this machine",
		"ulimit": "unable start: runc: setrlimit: operation not permitted: berth doctor shows what containers need of this machine, and has advice on limits",
	} {
		e := New(Options{Name: "unable"})
		e.checks = func() []environment.MachineCheck {
			return []environment.MachineCheck{{Name: "limits", Text: "few", Remedy: remedy}, {Name: "devices", Text: "all"}}
		}
		_, err := e.start(t.Context(), &remote{Engine: unable{}, name: "unable", slots: make(chan struct{}, 1)}, Container{Name: "berth-x"})
		if !errors.Is(err, errRuntime) || strings.TrimSpace(err.Error()) != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}
