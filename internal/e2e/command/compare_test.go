package command

import (
	"encoding/csv"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// Two agents that differ on every task, and two that do not, in one run and over
// two runs.
func TestCellsAreCompared(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	for range 2 {
		berth(t, dir, "run", filepath.Join(tree.Root, "examples", "quickstart")).want(t, 0)
	}
	r := berth(t, dir, "compare", "last", "--json")
	r.want(t, 0)
	c := answer[types.Comparison](t, r, "cli-compare")
	if len(c.Cells) != 3 || len(c.Pairs) != 3 {
		t.Fatalf("%d cells, %d pairs", len(c.Cells), len(c.Pairs))
	}
	rates := map[string]float64{}
	for _, cell := range c.Cells {
		if cell.Mean == nil {
			t.Fatalf("cell %+v", cell)
		}
		rates[cell.Cell] = *cell.Mean
		if cell.Tasks != 3 || cell.Repetitions != 1 || cell.Measured != 3 || cell.Interval == nil || cell.Interval.Method != "wilson" || cell.SE != nil {
			t.Errorf("cell %+v", cell)
		}
	}
	if rates["agent=oracle"] != 1 || rates["agent=nop"] != 0 || rates["agent=terminus"] != 1 {
		t.Errorf("rates %v", rates)
	}
	for _, p := range c.Pairs {
		switch one := strings.Contains(p.A+p.B, "nop"); {
		case one && (math.Abs(p.P-0.25) > 1e-9 || math.Abs(p.Holm-0.75) > 1e-9 || p.Interval != nil || p.Test != "mcnemar" || len(p.OnlyA)+len(p.OnlyB) != 3 || p.Difference*p.Difference != 1):
			t.Errorf("three tasks that one solves: %+v", p)
		case !one && (p.P != 1 || p.Difference != 0 || !strings.Contains(p.Sentence, "score the same")):
			t.Errorf("the same results: %+v", p)
		}
	}
	selects(t, dir)
	groups(t, dir)
	text := berth(t, dir, "compare", "last", "--cell", "*oracle", "--cell", "*nop")
	text.want(t, 0)
	if !strings.Contains(text.out, "scores 100.0 points higher than") || !strings.Contains(text.out, "(p = 0.25 after Holm, 3 tasks × 1)") {
		t.Errorf("printed %q", text.out)
	}
	runs := e2etest.Found(t, 2, dir, "runs", "*")
	both := berth(t, dir, "compare", runs[0], runs[1], "--cell", "*nop", "--json")
	both.want(t, 0)
	if c = answer[types.Comparison](t, both, "cli-compare"); len(c.Pairs) != 1 || c.Pairs[0].Tasks != 3 || c.Pairs[0].Changed != 0 {
		t.Errorf("over two runs: %+v", c.Pairs)
	}
}

// selects checks show --select on the last run in dir, one of the quickstart.
func selects(t *testing.T, dir string) {
	t.Helper()
	r := berth(t, dir, "show", "last", "--select", `agent == "terminus" && steps > 0 && mode == "live" && rewards.reward == 1 && tokens > 0`, "--json")
	r.want(t, 0)
	if run := answer[types.ShowRun](t, r, "cli-show-run"); len(run.Trials) != 3 || run.Trials[0].CellKey != "agent=terminus" {
		t.Errorf("%d trials of terminus were selected", len(run.Trials))
	}
	r = berth(t, dir, "show", "last", "--select", `score > 1`)
	r.want(t, 0)
	if !strings.Contains(r.out, "no trial is selected") || strings.Contains(r.out, "show a trial") {
		t.Errorf("printed %q", r.out)
	}
}

// groups checks the numbers of groups of trials, of the two runs of the quickstart
// in dir.
func groups(t *testing.T, dir string) {
	t.Helper()
	r := berth(t, dir, "show", "last", "--by", "agent,tag", "--json")
	r.want(t, 0)
	table := answer[types.Table](t, r, "cli-show-table")
	if len(table.Rows) != 9 || !slices.Equal(table.By, []string{"agent", "tag"}) || len(table.Marks) != 0 {
		t.Fatalf("%d rows by %q, marks %q", len(table.Rows), table.By, table.Marks)
	}
	row := table.Rows[8]
	if !slices.Equal(row.Values, []string{"terminus", "quickstart"}) || *row.Mean != 1 || row.Tasks != 3 || *row.Tokens.Mean <= 0 || *row.Steps.Mean <= 1 ||
		row.CostPerRun == nil || row.Bootstrap == nil || len(row.Always) != 3 {
		t.Errorf("row %+v", row)
	}
	r = berth(t, dir, "show", "last", "--csv", "--select", `agent != "oracle"`)
	r.want(t, 0)
	lines, err := csv.NewReader(strings.NewReader(r.out)).ReadAll()
	if err != nil || len(lines) != 3 || lines[2][0] != "terminus" || lines[2][5] != "1" || lines[0][5] != "success_rate" {
		t.Errorf("%v: %q", err, lines)
	}
	for _, args := range [][]string{{"show", "last", "--by", "cell", "--latex"}, {"compare", "last", "--latex"}, {"compare", "last", "--markdown"}, {"compare", "last", "--csv"}} {
		r = berth(t, dir, args...)
		r.want(t, 0)
		if !strings.Contains(r.out+r.stderr, "standard error over repetitions") || !strings.Contains(r.out, "oracle") {
			t.Errorf("%q: %q", args, r.out)
		}
	}
}
