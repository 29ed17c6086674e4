package run

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/trial/feasible"
)

// freeMiB returns how much memory attempts may use, in MiB: what no process of this
// machine uses, or less if the job of this process may have less. 0: not known.
func (s *Spec) freeMiB() int64 {
	free := availableIn("/proc/meminfo")
	if s.Memory == nil {
		return free
	}
	if job, limited := s.Memory.FreeMiB(); limited && (free == 0 || job < free) {
		return max(job, 1)
	}
	return free
}

func availableIn(file string) int64 {
	f, err := os.Open(file)
	if err != nil {
		return 0
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var kib int64
		if rest, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			if _, err := fmt.Sscanf(rest, "%d kB", &kib); err == nil {
				return kib >> 10
			}
		}
	}
	return 0
}

// Demands returns a function that returns what the attempts of a trial take up. It
// is not safe for concurrent use.
func Demands(p *plan.Plan) func(*plan.Trial) Demand {
	type key struct {
		cell, place int
		dataset     string
	}
	known := map[key]Demand{}
	return func(t *plan.Trial) Demand {
		k := key{t.Cell, t.Place, t.Dataset}
		if d, ok := known[k]; ok {
			return d
		}
		c := p.Experiment.Cells[t.Cell]
		d := Demand{Environment: c.Environment.Label, Agent: c.Agent.Label}
		for _, m := range c.Agent.Models { // it may know one model by several names
			if !slices.Contains(d.Models, m.Label) {
				d.Models = append(d.Models, m.Label)
			}
		}
		for i := range c.Datasets {
			if task := p.Tasks[t.Place].Task; task != nil && c.Datasets[i].Label == t.Dataset {
				d.MemoryMiB = feasible.MemoryMiB(task, c.On(&c.Datasets[i]))
			}
		}
		known[k] = d
		return d
	}
}
