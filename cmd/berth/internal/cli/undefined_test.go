package cli

import (
	"bytes"
	"encoding/csv"
	"errors"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
)

// What is not defined is empty: pass@k of one repetition, the mean of nothing, a
// standard deviation of one value, and the tasks that are solved if nothing says what
// solves them.
func TestUndefinedValuesAreEmpty(t *testing.T) {
	t.Parallel()
	rate := 0.0
	res := &output.Comparison{
		Cells: []output.ComparedCell{
			{Name: "nothing", Rates: output.Rates{Planned: 1}},
			{Name: "once", Rates: output.Rates{Planned: 1, Measured: 1, Tasks: 1, Repetitions: 1, Mean: &rate, PassAt1: &rate}},
		},
		Pairs: []output.ComparedPair{{A: "nothing", B: "once", Test: "McNemar"}},
	}
	rows := func(table terminal.Table) (all []map[string]string) {
		var b bytes.Buffer
		wrong := table.WriteAs(&terminal.Printer{Out: &b}, terminal.CSV)
		records, err := csv.NewReader(&b).ReadAll()
		if err = errors.Join(wrong, err); err != nil {
			t.Fatal(err)
		}
		for _, r := range records[1:] {
			one := map[string]string{}
			for i, h := range records[0] {
				one[h] = r[i]
			}
			all = append(all, one)
		}
		return all
	}
	pairs := rows(flatPairs(res))
	for _, name := range []string{"low_95", "permutations", "solved_by_a_only"} {
		if v := pairs[0][name]; v != "" {
			t.Errorf("%s of the pair is %q", name, v)
		}
	}
	if table := rows(comparedCells(res)); table[0]["success rate"] != "–" || table[0]["pass@1"] != "–" {
		t.Errorf("the table says %q", table[0])
	}
}
