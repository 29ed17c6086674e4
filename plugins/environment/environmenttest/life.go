package environmenttest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// lifeClauses are about creating and removing sandboxes.
var lifeClauses = []conformance.Clause[Subject]{
	{
		Name:   "create makes a sandbox in which sandboxd connects",
		Guards: "an environment that says it is ready when nothing runs",
		Proof:  true,
		Needed: true,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.common(ctx, t)
			if b.ID == "" {
				t.Errorf("the sandbox has no id")
			}
			if got := sh(ctx, t, b.shell(ctx, t), "echo hello"); got != "hello" {
				t.Errorf("echo hello printed %q", got)
			}
		},
	},
	{
		Name:   "two sandboxes have two ids",
		Guards: "a destroy that hits a neighbour",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			if a, b := s.borrowed(ctx, t), s.common(ctx, t); a.ID == b.ID {
				t.Errorf("both are %q", a.ID)
			}
		},
	},
	{
		Name:   "destroy ends everything inside",
		Guards: "processes that continue, and hold ports and memory, after the attempt",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.fresh(ctx, t, nil)
			sh(ctx, t, b.shell(ctx, t), "(sleep 1000 >/dev/null 2>&1 &) ; :")
			if _, err := s.Environment.Destroy(ctx, b.ID); err != nil {
				t.Fatalf("destroy: %v", err)
			}
			select {
			case <-b.core.Lost():
			case <-time.After(conformance.Patience(5 * time.Second)):
				t.Fatalf("sandboxd still answers five seconds after destroy")
			}
			if b.PID > 0 {
				eventually(ctx, t, "PID 1 of the sandbox is gone", func() bool { return !alive(b.PID) || zombie(b.PID) })
			}
		},
	},
	{
		Name:   "destroy twice, and of an unknown id, is not an error",
		Guards: "a cleanup that fails because it was done already",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.fresh(ctx, t, nil)
			for _, id := range []string{b.ID, b.ID, "no-such-sandbox"} {
				if _, err := s.Environment.Destroy(ctx, id); err != nil {
					t.Errorf("destroy %q: %v", id, err)
				}
			}
		},
	},
	{
		Name:   "destroy does not wait for a command",
		Guards: "a graceful stop that costs ten seconds for each attempt",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.fresh(ctx, t, nil)
			c := b.shell(ctx, t)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = try(context.WithoutCancel(ctx), &conformance.T{}, c, "trap '' TERM INT HUP; while :; do sleep 1; done")
			}()
			time.Sleep(100 * time.Millisecond)
			soon, cancel := context.WithTimeout(ctx, conformance.Patience(3*time.Second))
			defer cancel()
			if err := b.destroy(soon); err != nil {
				t.Errorf("destroy: %v", err)
			}
			<-done
		},
	},
	{
		Name:   "what destroy reports is plausible",
		Guards: "a negative peak in a report",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.fresh(ctx, t, nil)
			r, err := s.Environment.Destroy(ctx, b.ID)
			if err != nil || r.OOMKills < 0 || r.PeakMemoryMiB < 0 || r.CPU < 0 || r.Throttled < 0 {
				t.Errorf("got %+v, %v", r, err)
			}
		},
	},
	{
		Name:   "list finds sandboxes by owner, until they are destroyed",
		Guards: "leftovers of a killed run that are not found, or of another run that are removed",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			own := s.kit.owner + "-list"
			b := s.fresh(ctx, t, func(p *environment.Spec) { p.Labels.Owner = own })
			for owner, want := range map[string]bool{own: true, s.kit.owner + "-nobody": false, "": true} {
				ids, err := s.Environment.List(ctx, owner)
				if err != nil || slices.Contains(ids, b.ID) != want {
					t.Errorf("list %q: %q, %v; sandbox %q in it should be %v", owner, ids, err, b.ID, want)
				}
			}
			if _, err := s.Environment.Destroy(ctx, b.ID); err != nil {
				t.Fatalf("destroy: %v", err)
			}
			if ids, err := s.Environment.List(ctx, own); err != nil || len(ids) != 0 {
				t.Errorf("after destroy: %q, %v", ids, err)
			}
		},
	},
	{
		Name:   "a create that is canceled leaves nothing",
		Guards: "a sandbox that stays forever after a Ctrl-C at the wrong moment",
		Time:   20 * time.Second,
		Run:    canceled,
	},
	{
		Name:   "a create that fails leaves nothing, and the next one works",
		Guards: "one bad task that spoils the run",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			own := s.kit.owner + "-bad"
			spec, folder, err := s.spec(func(p *environment.Spec) {
				p.Labels.Owner = own
				p.Control = filepath.Join(t.TempDir(), "gone")
			})
			if err != nil {
				t.Fatalf("%v", err)
			}
			defer func() { _ = folder.Close() }()
			if made, err := s.Environment.Create(ctx, spec); err == nil {
				_, _ = s.Environment.Destroy(ctx, made.ID)
				t.Errorf("made %q with a control folder that does not exist", made.ID)
			}
			if ids, err := s.Environment.List(ctx, own); err != nil || len(ids) != 0 {
				t.Errorf("left %q, %v", ids, err)
			}
			s.fresh(ctx, t, nil)
		},
	},
	{
		Name:   "32 sandboxes can be created at the same time",
		Guards: "names, locks or ports that two sandboxes want at the same time",
		Time:   60 * time.Second,
		Run:    crowd,
	},
	{
		Name:   "a sandbox ends when its core does",
		Guards: "sandboxes that outlive a killed run",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.fresh(ctx, t, nil)
			if err := b.core.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			again, err := b.folder.Again()
			if err != nil {
				t.Fatalf("%v", err)
			}
			defer func() { _ = again.Close() }()
			eventually(ctx, t, "PID 1 ends with the core's connection", func() bool { return !alive(b.core.PID) || zombie(b.core.PID) })
			_ = again.SetDeadline(time.Now().Add(conformance.Patience(time.Second)))
			if c, err := again.Accept(); err == nil {
				_ = c.Close()
				t.Errorf("after its end the sandbox was started again")
			}
		},
	},
	{
		Name:   "check starts nothing, and gives the same answer twice",
		Guards: "a plan that makes sandboxes",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			own := s.kit.owner + "-check"
			spec, folder, err := s.spec(func(p *environment.Spec) { p.Labels.Owner = own })
			if err != nil {
				t.Fatalf("%v", err)
			}
			defer func() { _ = folder.Close() }()
			first, err1 := s.Environment.Check(ctx, spec)
			second, err2 := s.Environment.Check(ctx, spec)
			if err1 != nil || err2 != nil || !reflect.DeepEqual(first, second) {
				t.Errorf("first %+v, %v; then %+v, %v", first, err1, second, err2)
			}
			if ids, err := s.Environment.List(ctx, own); err != nil || len(ids) != 0 {
				t.Errorf("check made %q, %v", ids, err)
			}
		},
	},
	{
		Name:   "what check refuses create refuses, too",
		Guards: "a refusal that comes only during the run, or as a crash",
		Run:    refused,
	},
	{
		Name:   "a configuration with an unknown key is refused",
		Guards: "a misspelt option that silently does nothing",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			spec, folder, err := s.spec(func(p *environment.Spec) { p.Config = []byte(`{"an_option_that_no_environment_has": true}`) })
			if err != nil {
				t.Fatalf("%v", err)
			}
			defer func() { _ = folder.Close() }()
			report, err := s.Environment.Check(ctx, spec)
			if err == nil && len(report.Refusals) == 0 {
				t.Errorf("check accepts it")
			}
		},
	},
}

// canceled cancels Create at different moments of its usual duration.
func canceled(ctx context.Context, t *conformance.T, s Subject) {
	began := time.Now()
	s.fresh(ctx, t, nil)
	usual := time.Since(began)
	own := s.kit.owner + "-cut"
	for i := range 6 {
		spec, folder, err := s.spec(func(p *environment.Spec) { p.Labels.Owner = own })
		if err != nil {
			t.Fatalf("%v", err)
		}
		cut, cancel := context.WithTimeout(ctx, usual*time.Duration(i)/5)
		made, err := s.Environment.Create(cut, spec)
		cancel()
		if err == nil { // Create finished before the cancel: destroy the sandbox
			if _, err := s.Environment.Destroy(ctx, made.ID); err != nil {
				t.Errorf("destroy: %v", err)
			}
		}
		_ = folder.Close()
	}
	eventually(ctx, t, "no sandbox of a canceled create is left", func() bool {
		ids, err := s.Environment.List(ctx, own)
		return err == nil && len(ids) == 0
	})
}

// refused tries specs that most environments refuse, each for a different
// reason.
func refused(ctx context.Context, t *conformance.T, s Subject) {
	own := s.kit.owner + "-refused"
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
		spec, folder, err := s.spec(func(p *environment.Spec) { change(p); p.Labels.Owner = own })
		if err != nil {
			t.Fatalf("%v", err)
		}
		report, err := s.Environment.Check(ctx, spec)
		for _, p := range report.Refusals {
			if p.Summary == "" || p.Detail == "" {
				t.Errorf("%s: refusal %+v does not say what and what to do", what, p)
			}
		}
		if err != nil || len(report.Refusals) > 0 {
			made, err := s.Environment.Create(ctx, spec)
			if err == nil {
				_, _ = s.Environment.Destroy(ctx, made.ID)
				t.Errorf("%s: check refuses it (%+v) and create makes it", what, report.Refusals)
			} else if errors.Is(err, environment.ErrNoCapacity) {
				t.Errorf("%s: %v: would be tried again forever", what, err)
			}
		} else {
			t.Logf("%s: not refused", what)
		}
		_ = folder.Close()
	}
	if ids, err := s.Environment.List(ctx, own); err != nil || len(ids) != 0 {
		t.Errorf("left %q, %v", ids, err)
	}
}

func crowd(ctx context.Context, t *conformance.T, s Subject) {
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			b, err := s.create(ctx, nil)
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			c, err := b.core.Shell(ctx, sessionOf(b))
			if err != nil {
				t.Errorf("shell: %v", err)
			} else {
				if r, err := c.Exec(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", "exit 7"}}); err != nil || r.ExitCode != 7 {
					t.Errorf("got %+v, %v; want exit code 7", r, err)
				}
				_ = c.Close()
			}
			if err := b.destroy(context.WithoutCancel(ctx)); err != nil {
				t.Errorf("destroy: %v", err)
			}
		})
	}
	all.Wait()
}

// zombie reports whether the process has exited and only waits to be reaped.
func zombie(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "stat"))
	if err != nil {
		return true
	}
	i := slices.Index(b, ')')
	return i < 0 || i+2 < len(b) && b[i+2] == 'Z'
}
