package testlevel_test

import (
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
)

// asked is a test whose skip is kept and does not end it.
type asked struct {
	testing.TB

	reason string
}

func (a *asked) Helper()          {}
func (a *asked) Skip(args ...any) { a.reason, _ = args[0].(string) }

func TestAProgramThatIsMissingIsASkip(t *testing.T) {
	t.Parallel()
	a := &asked{TB: t}
	if path := testlevel.Program(a, "sh", "dash"); path == "" || a.reason != "" {
		t.Errorf("sh is at %q, skipped: %q", path, a.reason)
	}
	testlevel.Program(a, "no-such-program", "some-package")
	if want := "no-such-program is not installed: apt-get install some-package"; a.reason != want {
		t.Errorf("skipped: %q, want %q", a.reason, want)
	}
}

// The table of skips counts reasons: what differs from machine to machine is not in them.
func TestAReasonHasNoErrorInIt(t *testing.T) {
	t.Parallel()
	a := &asked{TB: t}
	testlevel.Cannot(a, testlevel.NoMounts, "operation not permitted")
	if a.reason != testlevel.NoMounts {
		t.Errorf("skipped: %q", a.reason)
	}
}
