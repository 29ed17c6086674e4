package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/plugins/task"
)

// sayDeclared prints what tasks declare, and as a table what not every cell delivers.
func (a *app) sayDeclared(p *output.Plan) {
	for _, d := range p.Declared {
		var all, everywhere []string
		var differ []task.Feature
		for _, f := range d.Features {
			if all = append(all, string(f)); deliveredBy(d, f) {
				everywhere = append(everywhere, string(f))
			} else {
				differ = append(differ, f)
			}
		}
		text := ""
		switch {
		case len(d.Cells) == 0:
			text = "; no cell can run it"
		case len(differ) == 0:
			text = "; every cell delivers all of it"
		case len(everywhere) > 0:
			text = "; every cell delivers " + strings.Join(everywhere, ", ")
		}
		a.Printf("declared by %s: %s%s\n", terminal.Clean(someTasks(d.Tasks, len(p.Tasks))), strings.Join(all, ", "), text)
		if len(differ) > 0 {
			a.deliveries(d, differ, p)
		}
		a.Printf("\n")
	}
}

func deliveredBy(d plan.Declared, f task.Feature) bool {
	for _, c := range d.Cells {
		if c.Delivery[f] != feasible.Delivered {
			return false
		}
	}
	return true
}

// someTasks names the first of some tasks.
func someTasks(names []string, of int) string {
	switch {
	case len(names) == of && of > 1:
		return fmt.Sprintf("all %d tasks", of)
	case len(names) > 2:
		return fmt.Sprintf("%d tasks (%s, %s and others)", len(names), names[0], names[1])
	default:
		return strings.Join(names, ", ")
	}
}

// deliveries prints how cells deliver some features.
func (a *app) deliveries(d plan.Declared, fs []task.Feature, p *output.Plan) {
	t := terminal.Table{Head: []string{"cell"}}
	for _, f := range fs {
		t.Head = append(t.Head, string(f))
	}
	for _, c := range d.Cells {
		var row []string
		for _, f := range fs {
			row = append(row, cmp.Or(string(c.Delivery[f]), "not known"))
		}
		for _, key := range c.Cells {
			t.Row(append([]string{terminal.Clean(cellName(p, key))}, row...)...)
		}
	}
	t.Write(a.Printer)
}

// cellName is what tables call a cell; the only cell of an experiment has an empty key.
func cellName(p *output.Plan, key string) string {
	if key == "" && len(p.Cells) > 0 {
		return p.Cells[0].Agent
	}
	return key
}

// sayNeeds prints what several tasks declare, one line for those that declare the same.
func (a *app) sayNeeds(tasks []output.TaskReport) {
	var lists []string // of features, in the order of the tasks
	names := map[string][]string{}
	for _, r := range tasks {
		var fs []string
		for _, n := range r.Needs {
			if !slices.Contains(fs, string(n.Feature)) {
				fs = append(fs, string(n.Feature))
			}
		}
		list := strings.Join(fs, ", ")
		if list == "" {
			continue
		}
		if names[list] == nil {
			lists = append(lists, list)
		}
		names[list] = append(names[list], r.Name)
	}
	for _, list := range lists {
		a.Printf("declared by %s: %s\n", terminal.Clean(someTasks(names[list], len(tasks))), list)
	}
	if len(lists) > 0 {
		a.Printf("\n")
	}
}
