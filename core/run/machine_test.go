package run

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
)

func TestWhatTheKernelSaysOfMemoryIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		testlevel.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	if got := availableIn(file("meminfo", "MemTotal:       24576000 kB\nMemFree:  1 kB\nMemAvailable:   8388608 kB\n")); got != 8<<10 {
		t.Errorf("8 GiB are %d MiB", got)
	}
	if got := availableIn(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("an unknown memory has %d MiB", got)
	}
	machine := (&Spec{}).freeMiB()
	if machine <= 0 {
		t.Errorf("this machine has %d MiB", machine)
	}
	for _, tt := range []struct {
		job  job
		want int64
	}{{job{}, machine}, {job{1, true}, 1}, {job{0, true}, 1}, {job{1 << 40, true}, machine}} {
		// Both numbers of the machine are of different moments.
		if got := (&Spec{Memory: tt.job}).freeMiB(); got != tt.want && (tt.want != machine || got <= machine/2) {
			t.Errorf("a job with %+v leaves %d MiB, want %d", tt.job, got, tt.want)
		}
	}
}

// job is a job that has this much memory left.
type job struct {
	left    int64
	limited bool
}

func (j job) FreeMiB() (left int64, limited bool) { return j.left, j.limited }
func (job) Kills() int64                          { return 0 }
