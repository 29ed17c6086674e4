package sandboxd_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

// What each kind of sandbox lets root do to PID 1. Whatever it lets it do is
// noticed.
func TestLimitsOfPID1AreItsOwn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		o         sandboxtest.Options
		succeeds  []string // of limits
		refuses   []string
		noticedAs string // empty: nothing has changed
	}{
		{
			"without the guards",
			sandboxtest.Options{ManyIDs: true, NoOwnCap: true, Without: []string{"mixture"}},
			[]string{"take its id", "prlimit with its id", "prlimit of a thread with its id", "sched_setscheduler with its id"},
			[]string{"prlimit", "sched_setscheduler"},
			"limit FSIZE is 0:0, and was unlimited:unlimited at its start",
		},
		{
			"without a capability of its own",
			sandboxtest.Options{ManyIDs: true, NoOwnCap: true},
			[]string{"take its id", "sched_setscheduler with its id"},
			[]string{"prlimit", "prlimit of a thread", "prlimit with its id", "prlimit of a thread with its id", "sched_setscheduler"},
			"the scheduling policy of its thread",
		},
		{
			"all guards", sandboxtest.Options{ManyIDs: true}, []string{"take its id"}, []string{
				"prlimit", "prlimit of a thread", "sched_setscheduler", "sched_setaffinity", "setpriority",
				"prlimit with its id", "prlimit of a thread with its id", "sched_setscheduler with its id", "sched_setaffinity with its id", "setpriority with its id",
			}, "",
		},
		{"one id", sandboxtest.Options{OneID: true}, []string{"prlimit"}, []string{"sched_setscheduler", "sched_setaffinity"}, "limit FSIZE is 0:0"},
		{"one id, without a capability of its own", sandboxtest.Options{OneID: true, NoOwnCap: true}, []string{"prlimit", "sched_setscheduler"}, nil, "limit FSIZE is 0:0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := sandboxtest.Start(t, tt.o)
			if err := b.Untouched(t.Context()); err != nil {
				t.Fatalf("before the attack: %v", err)
			}
			c := b.Shell("agent")
			out, err := attack(t, c, "limits")
			if err != nil {
				t.Fatal(err)
			}
			compare(t, out, tt.succeeds, tt.refuses)
			if noticed(t, b, tt.noticedAs); tt.noticedAs == "" {
				err = serves(t, c)
			}
			if err != nil {
				t.Error(err)
			}
			if told := slices.ContainsFunc(b.Hello.Findings, func(f string) bool { return strings.Contains(f, "lower the limits of PID 1") }); told != tt.o.OneID {
				t.Errorf("findings are %q", b.Hello.Findings)
			}
		})
	}
}

// compare looks for what an attacker did and for what it was refused.
func compare(t *testing.T, out string, succeeds, refuses []string) {
	t.Helper()
	did := succeeded(out)
	for _, what := range succeeds {
		if !slices.Contains(did, what) {
			t.Errorf("%q did not succeed: is the guard still needed?\n%s", what, out)
		}
	}
	for _, what := range refuses {
		if slices.Contains(did, what) || !strings.Contains(out, "- "+what+":") {
			t.Errorf("%q succeeded\n%s", what, out)
		}
	}
}

// noticed looks for what each call of the host says was done to PID 1; empty:
// nothing.
func noticed(t *testing.T, b *sandboxtest.Box, want string) {
	t.Helper()
	_, settled := b.Settle(t.Context(), nil, nil)
	for call, err := range map[string]error{"Untouched": b.Untouched(t.Context()), "Settle": settled} {
		if want == "" && err != nil || want != "" && (!errors.Is(err, host.ErrTampered) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", call, err, want)
		}
	}
}

// Fewer processors for one thread are noticed.
func TestProcessorsOfPID1AreItsOwn(t *testing.T) {
	t.Parallel()
	if runtime.NumCPU() == 1 {
		t.Skip("this machine has one processor")
	}
	b := sandboxtest.Start(t, sandboxtest.Options{OneID: true, NoOwnCap: true})
	if _, err := attack(t, b.Shell("agent"), "processors"); err != nil {
		t.Fatal(err)
	}
	if err := b.Untouched(t.Context()); !errors.Is(err, host.ErrTampered) || !strings.Contains(err.Error(), "processors") {
		t.Errorf("%v, want that it is kept to fewer processors", err)
	}
}
