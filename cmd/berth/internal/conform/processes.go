package conform

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
)

// markKey is a variable in the environment of a plugin under test. Its
// descendants inherit it, also in another session or process group.
const markKey = "BERTH_PLUGIN_TEST"

// marked is the processes of the binary under test.
func (b *bench) marked() (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(append([]byte{0}, text...), []byte("\x00"+b.mark+"\x00")) {
			continue // another user's, or it has ended
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// load is what the processes of the binary under test come to.
func (b *bench) load() (l conformance.Load) {
	for _, pid := range b.marked() {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		alive := false
		for _, f := range threads {
			text, _ := os.ReadFile(f)
			_, state, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" "))
			alive = alive || len(state) > 0 && state[0] != 'Z'
			l.Running = l.Running || len(state) > 0 && state[0] == 'R'
		}
		if alive {
			l.Processes++
		}
	}
	return l
}

// leftTime is how long the descendants of a plugin may take to end after it.
const leftTime = 3 * time.Second

// leftClauses are tried once, after everything else.
var leftClauses = []conformance.Clause[*bench]{{
	Name: "no process of the plugin is left when it has ended", Guards: "programs that stay on the machine after a run, in their own session",
	Run: func(t *conformance.T, b *bench) {
		b.host.Stop()
		for end := time.Now().Add(conformance.Patience(leftTime)); len(b.marked()) > 0 && time.Now().Before(end) && t.Context().Err() == nil; {
			time.Sleep(20 * time.Millisecond)
		}
		for _, pid := range b.marked() {
			argv, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			t.Errorf("process %d is left: %q", pid, strings.ReplaceAll(strings.TrimRight(string(argv), "\x00"), "\x00", " "))
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	},
}}
