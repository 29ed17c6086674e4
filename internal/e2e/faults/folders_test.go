package faults

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// newcomer is a user id that nobody has, like stranger. The tests take away its
// folders in /tmp and other shared folders; squatter is the user who owns them
// then.
const (
	newcomer = 54329
	squatter = 54330
)

// set changes variables of the place. A variable without a value is unset.
func (p *place) set(vars ...string) {
	for _, kv := range vars {
		name, value, _ := strings.Cut(kv, "=")
		p.env = slices.DeleteFunc(p.env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		if value != "" {
			p.env = append(p.env, kv)
		}
	}
}

// works checks that the first commands of a user work in p: doctor, plan and a
// run of one task.
func (p *place) works(command ...string) {
	t := p.test
	t.Helper()
	t.Cleanup(func() { _ = os.RemoveAll(p.temp()) })
	p.task("tiny", "", solveTiny, testTiny)
	p.experiment("agent = agent.oracle", "")
	berth := append(command, filepath.Join(bin, "berth"))
	for _, args := range []string{"doctor", "plan", "run --no-live", "gc"} {
		r := p.shepherd(nil, nil, append(slices.Clone(berth), strings.Fields(args)...)...).wait().want(t, 0)
		if strings.HasPrefix(args, "run") && !strings.Contains(r.stdout, "passed") || args == "doctor" && !strings.Contains(r.stdout, "runtime folder: /") {
			t.Errorf("berth %s said:\n%s\n%s", args, r.stdout, r.stderr)
		}
	}
}

// sharedFolders are the folders in which everybody may write.
var sharedFolders = []string{"/tmp", "/var/tmp", "/dev/shm"}

// take creates folders that belong to another user and have the names that
// berth uses for a user.
func take(t *testing.T, uid, by int) {
	t.Helper()
	for _, shared := range sharedFolders {
		for _, name := range []string{"berth-", "berth-engines-"} {
			dir := filepath.Join(shared, name+strconv.Itoa(uid))
			if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) && uid == by {
				continue // it is that user's own
			} else if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Remove(dir) }) // unless it is in use by now
			e2etest.Must(t, os.Chown(dir, by, by))
		}
	}
}

// vacate removes what the users of these tests have created in shared folders.
func vacate(t *testing.T) {
	t.Helper()
	for _, shared := range sharedFolders {
		made, err := filepath.Glob(filepath.Join(shared, "berth*"))
		if err != nil {
			t.Error(err)
		}
		for _, dir := range made {
			info, err := os.Lstat(dir)
			if err != nil {
				continue
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid == newcomer {
				_ = os.RemoveAll(dir)
			}
		}
	}
}

// If the folders that berth would use first cannot be used, a run finds others,
// and doctor and plan try the same folders.
func TestFoldersThatCannotBeUsedStopNobody(t *testing.T) {
	testlevel.Root(t, "be another user")
	home := func(p *place) string { return filepath.Join(p.dir, "home") }
	for name, spoil := range map[string]func(t *testing.T, p *place) (command []string){
		"somebody else has every name in shared folders": func(t *testing.T, p *place) []string {
			take(t, newcomer, squatter)
			p.set("XDG_RUNTIME_DIR", "HOME")
			return nil
		},
		"su keeps the variables of root": func(_ *testing.T, p *place) []string {
			p.set("XDG_RUNTIME_DIR="+top, "HOME="+top)
			return nil
		},
		"HOME and the session's folder are not there": func(_ *testing.T, p *place) []string {
			p.set("HOME="+home(p)+"/gone", "XDG_RUNTIME_DIR="+p.runtime()+"/gone")
			return nil
		},
		"HOME is read-only": func(t *testing.T, p *place) []string {
			e2etest.Must(t, os.Chmod(home(p), 0o500))
			p.set("XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
			return nil
		},
		"TMPDIR is gone": func(_ *testing.T, p *place) []string {
			p.set("TMPDIR="+p.temp()+"/gone", "XDG_RUNTIME_DIR")
			return nil
		},
		"root of a user namespace beside the machine's root": func(t *testing.T, p *place) []string {
			unshare := testlevel.Program(t, "unshare", "util-linux")
			take(t, 0, 0)
			p.set("XDG_RUNTIME_DIR", "HOME")
			return []string{unshare, "--user", "--map-root-user"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := placeOf(t, newcomer)
			t.Cleanup(func() { vacate(t) })
			p.works(spoil(t, p)...)
		})
	}
}

// If the home has no space, the runtime folder of the session is used instead,
// for copies of the host and for everything else.
func TestAHomeThatIsFullStopsNobody(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	t.Cleanup(func() { _ = os.RemoveAll(p.temp()) })
	p.set("XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
	p.task("tiny", "", solveTiny, testTiny)
	p.experiment("agent = agent.oracle", "")
	p.write("script.sh", `
set -u
head -c 1m /dev/zero > home/fill 2> /dev/null
echo x 2> /dev/null > home/more && [ -s home/more ] && { echo the home is not full; exit 99; }
for command in doctor plan "run --no-live"; do
	"$1" $command || exit
done
`)
	r := p.shepherd(ownMounts, []string{diskEnv + "=home|64k"}, "/bin/sh", "script.sh", filepath.Join(bin, "berth")).wait().want(t, 0)
	if !strings.Contains(r.stdout, "passed") {
		t.Errorf("said:\n%s\n%s", r.stdout, r.stderr)
	}
}
