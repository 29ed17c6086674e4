package host_test

import (
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

// Whether an image lacks what a session needs can be told as long as that has
// started nothing.
func TestWhatASessionHasStarted(t *testing.T) {
	t.Parallel()
	b, ctx := sandboxtest.Start(t, sandboxtest.Options{}), t.Context()
	c := b.Shell("agent")
	check := func(started uint64, refused string) {
		t.Helper()
		if s, err := b.Starts(ctx, "agent"); err != nil || s.Started != started || (s.Refused == "") != (refused == "") || !strings.Contains(s.Refused, refused) {
			t.Errorf("%+v, %v; want %d started, refused %q", s, err, started, refused)
		}
	}
	check(0, "")
	if err := c.Upload(ctx, "/tmp", strings.NewReader(""), sandbox.UploadOptions{User: "nobody-of-that-name"}); err == nil {
		t.Error("a user that is not there owns an upload")
	}
	check(0, `no user "nobody-of-that-name"`)
	if _, err := c.Exec(ctx, sandbox.Command{Argv: []string{"no-such-program"}}); err == nil {
		t.Error("a program that is not there was started")
	}
	check(0, `no user "nobody-of-that-name"`)
	run(t, c, "true")
	check(1, "no user")
	if s, err := b.Starts(ctx, "nobody"); err != nil || s.Started != 0 || s.Refused != "" {
		t.Errorf("a session that does not exist: %+v, %v", s, err)
	}
	other := b.Shell("other")
	if _, err := other.Terminal(ctx, sandbox.TerminalSpec{ID: "t", Argv: []string{"no-such-program"}}); err == nil {
		t.Error("a terminal with a program that is not there was opened")
	}
	if s, err := b.Starts(ctx, "other"); err != nil || s.Started != 0 || !strings.Contains(s.Refused, "no-such-program") {
		t.Errorf("a terminal: %+v, %v", s, err)
	}
}
