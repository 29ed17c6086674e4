package faults

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// A test prints 1 GB, and no file may be larger than 32 MiB. Berth needs a bounded
// amount of memory and of disk.
func TestATestThatPrintsAGigabyte(t *testing.T) {
	t.Parallel()
	const (
		file = 32 << 20
		most = 150_000_000
	)
	p := newPlace(t)
	p.task("tiny", "", e2etest.SolveTiny, e2etest.TestTiny)
	e2etest.Must(t, os.CopyFS(filepath.Join(p.dir, "tasks", "flood"), os.DirFS(filepath.Join(tree(), "examples", "faults", "tasks", "flood"))))
	p.experiment("matrix {\n    agent = [agent.oracle]\n  }", "")
	r := p.start([]string{fileEnv + "=" + strconv.Itoa(file)}, "run", ".").wait().want(t, 0)
	if r.Peak == 0 || r.Peak > most {
		t.Errorf("berth, or a process of it, had %d bytes at its peak", r.Peak)
	}
	show := p.settled(p.run())
	for i := range show.Trials {
		if a := show.Trials[i].Attempts; len(a) != 1 || a[0].Outcome != record.Passed || e2etest.Result(t, a[0].Dir).Integrity != record.Checked {
			t.Errorf("%s: %+v, want a pass that is checked", show.Trials[i].Task, a)
		}
	}
	p.floodIsCut(show)
	p.clean()
}

// limitFiles gives this process, and all that it starts, the limit of fileEnv.
func limitFiles(bytes string) error {
	if bytes == "" {
		return nil
	}
	n, err := strconv.ParseUint(bytes, 10, 63)
	if err == nil {
		err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: n})
	}
	return err
}
