package run

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
)

func TestWhatTheKernelSaysOfMemoryIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for text, want := range map[string]float64{
		"some avg10=12.34 avg60=0.00 avg300=0.00 total=1\nfull avg10=9.00 avg60=0.00 avg300=0.00 total=0\n": 12.34,
		"": 0, "some\n": 0, "full avg10=9.00": 0,
	} {
		if got := pressureOf(file("pressure", text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := pressureOf(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("a kernel without pressure information has %v", got)
	}
	if got := availableIn(file("meminfo", "MemTotal:       24576000 kB\nMemFree:  1 kB\nMemAvailable:   8388608 kB\n")); got != 8<<10 {
		t.Errorf("8 GiB are %d MiB", got)
	}
	if got := availableIn(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("an unknown memory has %d MiB", got)
	}
	if got := freeMemory(); got <= 0 {
		t.Errorf("this machine has %d MiB", got)
	}
}

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
