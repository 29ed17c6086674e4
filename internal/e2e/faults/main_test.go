package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

// The source tree, and what needPrograms prepared for all tests.
var (
	tree = sync.OnceValue(func() string { // the root of the module
		dir, err := filepath.Abs("../../..")
		if err != nil {
			panic(err)
		}
		return dir
	})
	top string // a short folder that everybody may look into
	bin string // in it: berth, berth-sandboxd, plugins/
)

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "shepherd" {
		os.Exit(shepherd())
	}
	// In a sandbox that a test made this is not a test either.
	code := sandboxtest.Main(func() int { return testlevel.Main("test-e2e", m.Run) }, sandboxtest.Inside{})
	if top != "" {
		for _, l := range leftovers() {
			fmt.Fprintln(os.Stderr, "left when all tests were over:", l)
			code = max(code, 1)
		}
		_ = os.RemoveAll(top)
	}
	os.Exit(code)
}

// leftovers lists processes, mounts and folders in runtime places that should
// not be there any more. It waits for processes to end.
func leftovers() (left []string) {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // the tests are over: it is not a test that waits
		left = nil
		for _, pid := range descendants(os.Getpid()) {
			if c := cmdline(pid); c != "" && c != "?" { // not gone, nor ended and not waited for
				left = append(left, fmt.Sprintf("process %d: %s", pid, c))
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			break
		}
	}
	for _, folder := range []string{"r/berth/p", "r/berth/s", "r/berth/local-1/sandboxes", "t"} {
		found, err := filepath.Glob(filepath.Join(top, "*", folder, "*"))
		if err != nil {
			left = append(left, err.Error())
		}
		left = append(left, found...)
	}
	for line := range strings.Lines(read("/proc/self/mountinfo")) {
		if strings.Contains(line, top+"/") {
			left = append(left, "mount: "+line)
		}
	}
	return left
}

// needPrograms prepares the programs, once for all tests.
var needPrograms = sync.OnceValue(build)

func build() (err error) {
	if top, err = os.MkdirTemp(testlevel.Tmp(), "bf"); err != nil { // short: sockets lie below it
		return err
	}
	// Orphaned processes become children of this process, where leftovers finds
	// them.
	if err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	bin = filepath.Join(top, "bin")
	if err = os.Chmod(top, 0o755); err == nil {
		err = e2etest.Build(tree(), bin, "./agents/nop", "./agents/oracle", "./agents/minisweagent", "./agents/scaffolds", "./environments/local", "./verifiers/script")
	}
	if err != nil {
		return err
	}
	return nil
}
