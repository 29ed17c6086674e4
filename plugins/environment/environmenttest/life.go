package environmenttest

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// lifeClauses are about creating and removing sandboxes.
var lifeClauses = []clause{
	conformance.New("create makes a sandbox in which sandboxd connects", "an environment that says it is ready when nothing runs", func(t *conformance.T, s Subject) {
		b := s.common(t)
		if b.ID == "" {
			t.Errorf("the sandbox has no id")
		}
		b.prints("hello", "echo hello")
	}).AsProof().AsNeed(),
	conformance.New("two sandboxes have two ids", "a destroy that hits a neighbour", func(t *conformance.T, s Subject) {
		if a, b := s.Fresh(t, nil), s.common(t); a.ID == b.ID {
			t.Errorf("both are %q", a.ID)
		}
	}),
	conformance.New("destroy ends everything inside", "processes that continue, and hold ports and memory, after the attempt", func(t *conformance.T, s Subject) {
		b := s.Fresh(t, nil)
		b.sh("(sleep 1000 >/dev/null 2>&1 &) ; :")
		b.destroyed()
	}),
	conformance.New("destroy twice, and of an unknown id, is not an error", "a cleanup that fails because it was done already", func(t *conformance.T, s Subject) {
		b := s.Fresh(t, nil)
		for _, id := range []string{b.ID, b.ID, "no-such-sandbox"} {
			_, err := s.Environment.Destroy(t.Context(), id)
			t.Check("destroy "+id, err)
		}
	}),
	conformance.New("destroy does not wait for a command", "a graceful stop that costs ten seconds for each attempt", func(t *conformance.T, s Subject) {
		b := s.Fresh(t, nil)
		c := b.shell()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.Exec(context.WithoutCancel(t.Context()), sandbox.Command{Argv: []string{"/bin/sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done"}})
		}()
		time.Sleep(100 * time.Millisecond)
		soon, cancel := context.WithTimeout(t.Context(), conformance.Patience(3*time.Second))
		defer cancel()
		t.Check("destroy", b.destroy(soon))
		<-done
	}),
	conformance.New("list finds sandboxes by owner, until they are destroyed",
		"leftovers of a killed run that are not found, or of another run that are removed", func(t *conformance.T, s Subject) {
			own := s.kit.owner + "-list"
			b := s.Fresh(t, func(p *environment.Spec) { p.Labels.Owner = own })
			s.listed(t, own, b.ID)
			s.listed(t, own+"-nobody")
			if ids, err := s.Environment.List(t.Context(), ""); err != nil || !slices.Contains(ids, b.ID) {
				t.Errorf("list of all owners: %q, %v; want %q in it", ids, err, b.ID)
			}
			b.destroyed()
			s.listed(t, own)
		}),
	conformance.New("a create that is canceled leaves nothing", "a sandbox that stays forever after a Ctrl-C at the wrong moment", canceled).Within(20 * time.Second),
	conformance.New("a create that fails leaves nothing, and the next one works", "one bad task that spoils the run", func(t *conformance.T, s Subject) {
		_ = s.unmade(t, "a control folder that does not exist", func(p *environment.Spec) { p.Control = filepath.Join(t.TempDir(), "gone") })
		s.Fresh(t, nil)
	}),
	conformance.New("32 sandboxes can be created at the same time", "names, locks or ports that two sandboxes want at the same time", crowd).Within(60 * time.Second),
	conformance.New("a sandbox ends when its core does", "sandboxes that outlive a killed run", func(t *conformance.T, s Subject) {
		b := s.Fresh(t, nil)
		t.Must("close", b.Core.Close())
		again, err := b.folder.Again()
		t.Must("listen again", err)
		defer func() { _ = again.Close() }()
		t.Eventually("PID 1 ends with the core's connection", func() bool { return gone(b.Core.PID) })
		_ = again.SetDeadline(time.Now().Add(conformance.Patience(time.Second)))
		if c, err := again.Accept(); err == nil {
			_ = c.Close()
			t.Errorf("after its end the sandbox was started again")
		}
	}),
	conformance.New("check starts nothing, and gives the same answer twice", "a plan that makes sandboxes", func(t *conformance.T, s Subject) {
		own := s.kit.owner + "-check"
		spec := s.spec(t, func(p *environment.Spec) { p.Labels.Owner = own })
		first, err1 := s.Environment.Check(t.Context(), spec)
		second, err2 := s.Environment.Check(t.Context(), spec)
		if err1 != nil || err2 != nil || !reflect.DeepEqual(first, second) {
			t.Errorf("first %+v, %v; then %+v, %v", first, err1, second, err2)
		}
		s.listed(t, own)
	}),
	conformance.New("what check refuses create refuses, too", "a refusal that comes only during the run, or as a crash", refused),
}

// canceled cancels Create at different moments of its usual duration.
func canceled(t *conformance.T, s Subject) {
	began := time.Now()
	s.Fresh(t, nil)
	usual := time.Since(began)
	own := s.kit.owner + "-cut"
	for i := range 6 {
		spec := s.spec(t, func(p *environment.Spec) { p.Labels.Owner = own })
		cut, cancel := context.WithTimeout(t.Context(), usual*time.Duration(i)/5)
		made, err := s.Environment.Create(cut, spec)
		cancel()
		if err == nil { // Create finished before the cancel: destroy the sandbox
			_, err = s.Environment.Destroy(t.Context(), made.ID)
			t.Check("destroy", err)
		}
	}
	t.Eventually("no sandbox of a canceled create is left", func() bool {
		ids, err := s.Environment.List(t.Context(), own)
		return err == nil && len(ids) == 0
	})
}

// refused tries specs that most environments refuse, each for a different
// reason.
func refused(t *conformance.T, s Subject) {
	for what, change := range map[string]func(*environment.Spec){
		"a working folder that is not absolute": func(p *environment.Spec) { p.Workdir = "not/absolute" },
		"a mount of a folder that is not there": func(p *environment.Spec) {
			p.Mounts = []environment.Mount{{Source: "/no/such/folder", Target: "/opt/kit"}}
		},
		"a graphics card that does not exist": func(p *environment.Spec) { p.Limits.GPUs, p.Limits.GPUTypes = 512, []string{"berth-kit-none"} },
		"an image and a folder to build at once": func(p *environment.Spec) {
			p.Image = environment.Image{Ref: "localhost/berth-kit:none", Build: "/no/such/folder"}
		},
	} {
		report, err := s.Environment.Check(t.Context(), s.spec(t, change))
		for _, p := range report.Refusals {
			if p.Summary == "" || p.Detail == "" {
				t.Errorf("%s: refusal %+v does not say what and what to do", what, p)
			}
		}
		if err == nil && len(report.Refusals) == 0 {
			t.Logf("%s: not refused", what)
		} else if err := s.unmade(t, what+", which check refuses", change); errors.Is(err, environment.ErrNoCapacity) {
			t.Errorf("%s: %v: would be tried again forever", what, err)
		}
	}
}

func crowd(t *conformance.T, s Subject) {
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			b, err := s.create(t, nil)
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			c, err := b.Core.Shell(t.Context(), host.Session{ID: "crowd"})
			if err == nil {
				var r sandbox.Result
				if r, err = c.Exec(t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-c", "exit 7"}}); r.ExitCode != 7 {
					t.Errorf("got %+v; want exit code 7", r)
				}
				_ = c.Close()
			}
			t.Check("run a command", err)
			t.Check("destroy", b.destroy(context.WithoutCancel(t.Context())))
		})
	}
	all.Wait()
}
