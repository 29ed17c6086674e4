package run

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
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

// An attempt counts once for a model that its agent knows by two names.
func TestAModelWithTwoNamesCountsOnce(t *testing.T) {
	t.Parallel()
	m := &cell.Model{Label: "large"}
	of := cell.Cell{
		Agent: cell.Agent{Label: "one", Models: map[string]*cell.Model{"default": m, "small": m}}, Environment: cell.Environment{Label: "box"},
	}
	d := Demands(&plan.Plan{Experiment: &experiment.Experiment{Cells: []*experiment.Cell{{Cell: of}}}, Tasks: []plan.Task{{}}})(&plan.Trial{})
	if !slices.Equal(d.Models, []string{"large"}) {
		t.Fatalf("models: %q", d.Models)
	}
	p := newPlaces(experiment.RunLimits{Places: experiment.Places{InFlight: new(9)}, Model: map[string]experiment.Places{"large": {InFlight: new(2)}}}, 0)
	for i, want := range []refusal{admitted, admitted, full} {
		if got := p.holder(d).start(); got != want {
			t.Errorf("attempt %d of at most 2 with the model: %d, want %d", i+1, got, want)
		}
	}
}
