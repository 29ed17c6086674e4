package host_test

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

// What the agent put where tests and verdicts go is moved away, also where it
// bent the way there.
func TestFreshFolders(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{ManyIDs: os.Geteuid() == 0})
	c, ctx := b.Shell("agent"), t.Context()
	run(t, c, `echo 1 > /logs/verifier/reward.txt; rmdir /tests; mkdir -p /tmp/mine/deep; ln -s /tmp/mine /tests
		mkdir /out; echo x > /out/file; ln -s /tmp/mine /bent; mkfifo /pipe`)
	user := ""
	if os.Geteuid() == 0 {
		user = "alice"
	}
	moved, err := b.Fresh(ctx, user, 0o750, "/logs/verifier", "/tests", "/new/below", "/out/file/below", "/bent/deep", "/pipe", "/app")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	random := regexp.MustCompile(`\.aside-[A-Z2-7]{26}$`)
	for _, m := range moved {
		got = append(got, m.Path+" "+string(m.Kind)+" "+random.ReplaceAllString(m.Aside, ".aside-?"))
	}
	want := []string{
		"/logs/verifier folder /logs/verifier.aside-?", "/tests link /tests.aside-?", "/out/file file /out/file.aside-?",
		"/bent link /bent.aside-?", "/pipe other /pipe.aside-?",
	}
	if !slices.Equal(got, want) || moved[0].Entries != 1 {
		t.Errorf("moved\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	out := run(t, c, "find /logs/verifier /tests /new/below /out/file/below /bent/deep /pipe /app -mindepth 1 | wc -l; stat -c '%U %a %F' /tests /new; ls /tmp/mine/deep; cat /logs/verifier.aside-*/reward.txt")
	owner := "root"
	if user != "" {
		owner = user
	}
	if want := "0\n" + owner + " 750 directory\nroot 755 directory\n1\n"; out != want {
		t.Errorf("afterwards %q, want %q", out, want)
	}
	// Somebody who kept a descriptor of the old folder writes beside the new.
	begin(t, c, "holder", "sh", "-c", "cd /tests; echo up; while [ ! -e /tmp/go ]; do sleep 0.01; done; echo forged > reward.txt; touch /tmp/done; sleep 8600")
	if moved, err = b.Fresh(ctx, "", 0, "/tests"); err != nil || len(moved) != 0 {
		t.Fatalf("an empty folder: %+v, %v", moved, err)
	}
	run(t, c, "touch /tmp/go")
	testlevel.Eventually(t, "it has written", func() bool { _, missing := c.Stat(ctx, "/tmp/done"); return missing == nil })
	if _, err = c.Stat(ctx, "/tests/reward.txt"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("the new folder has its file: %v", err)
	}
	for _, bad := range []string{"/", "tests", "/a/../b", "/a/"} {
		if _, err := b.Fresh(ctx, "", 0, bad); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("fresh %q: %v", bad, err)
		}
	}
}

// An agent cannot take the names under which things are moved aside.
func TestFreshFoldersWhateverNamesAreTaken(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	run(t, b.Shell("agent"), "mkdir -p /tests/mine; seq -f /tests.aside-%.0f 9999 | xargs mkdir")
	moved, err := b.Fresh(t.Context(), "", 0, "/tests")
	if err != nil || len(moved) != 1 {
		t.Errorf("moved %+v, %v; want /tests", moved, err)
	}
}

func TestReadTakesOnlyPlainFiles(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	c, ctx := b.Shell("agent"), t.Context()
	grader := b.ShellOf(host.Session{ID: "grader", Grading: true})
	run(t, c, `cd /tmp; echo 1 > reward; ln -s reward link; ln reward hard; mkdir real; echo 2 > real/f; ln -s real dir; mkfifo pipe
		ln -s /proc/1/environ env; head -c 65537 /dev/zero > big`)
	data, err := grader.Read(ctx, "/tmp/reward", 64<<10)
	if err != nil || string(data) != "1\n" {
		t.Errorf("a plain file: %q, %v", data, err)
	}
	for path, want := range map[string]error{
		"/tmp/link": sandbox.ErrUnsafe, "/tmp/dir/f": sandbox.ErrUnsafe, "/tmp/pipe": sandbox.ErrUnsafe, "/tmp/real": sandbox.ErrUnsafe,
		"/tmp/env": sandbox.ErrUnsafe, "/proc/1/environ": sandbox.ErrUnsafe, "/dev/zero": sandbox.ErrUnsafe, "/tmp/nope": sandbox.ErrNotFound,
		"/tmp/big": sandbox.ErrTooLarge, "tmp/reward": sandbox.ErrInvalid, "/tmp/../tmp/reward": sandbox.ErrInvalid,
	} {
		if data, err := grader.Read(ctx, path, 64<<10); !errors.Is(err, want) {
			t.Errorf("%s: %d bytes, %v; want %v", path, len(data), err, want)
		}
	}
	if _, err := grader.Read(ctx, "/tmp/reward", 1); !errors.Is(err, sandbox.ErrTooLarge) {
		t.Errorf("one byte too many: %v", err)
	}
}

func TestSessionsKeepToThemselves(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	ctx := t.Context()
	if _, err := b.Attach(ctx, host.Session{}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a session without a name: %v", err)
	}
	one, two, again := b.Shell("one"), b.Shell("two"), b.Shell("one")
	if err := b.Detach(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*sandbox.Client{one, again} {
		if _, err := c.Stat(ctx, "/"); !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("a connection of a detached session: %v", err)
		}
	}
	if _, err := two.Stat(ctx, "/"); err != nil {
		t.Errorf("another session: %v", err)
	}
	if err := b.Detach(ctx, "nobody"); err != nil {
		t.Errorf("detaching nobody: %v", err)
	}
	if _, err := b.Shell("one").Stat(ctx, "/"); err != nil {
		t.Errorf("attached again: %v", err)
	}
}
