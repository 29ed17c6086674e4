package assign

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// scipyScript solves the matrices of a folder, and prints for each its cost and the
// shortest of several times, in nanoseconds.
const scipyScript = `
import json, sys, time
import numpy as np
from scipy.optimize import linear_sum_assignment
for name, rows, columns in json.load(open(sys.argv[1] + "/list.json")):
    m = np.fromfile(sys.argv[1] + "/" + name).reshape(rows, columns)
    times = []
    for _ in range(15):
        begin = time.perf_counter_ns()
        i, j = linear_sum_assignment(m)
        times.append(time.perf_counter_ns() - begin)
    print(json.dumps({"cost": float(m[i, j].sum()), "ns": min(times)}))
`

// The costs are those that scipy finds. The times of both are logged, for the
// benchmarks.
func TestBesideScipy(t *testing.T) {
	const python = "python3"
	if err := exec.CommandContext(t.Context(), python, "-c", "import scipy").Run(); err != nil {
		t.Skip("python3 has no scipy: apt-get install python3-scipy")
	}
	dice := rand.New(rand.NewPCG(7, 8))
	dir := t.TempDir()
	var all []Matrix
	var list [][]any
	for i, of := range []struct {
		name          string
		rows, columns int
		value         func() float64
	}{
		{"200 × 200, any", 200, 200, dice.Float64},
		{"200 × 200, similarity", 200, 200, similarity(dice)},
		{"200 × 2000, similarity", 200, 2000, similarity(dice)},
		{"500 × 200, similarity", 500, 200, similarity(dice)},
		{"200 × 200, few values", 200, 200, func() float64 { return float64(dice.IntN(5)) }},
		{"200 × 200, all equal", 200, 200, func() float64 { return 1 }},
	} {
		m := Matrix{of.rows, of.columns, make([]float64, of.rows*of.columns)}
		for k := range m.Costs {
			m.Costs[k] = of.value()
		}
		var raw bytes.Buffer
		if err := binary.Write(&raw, binary.LittleEndian, m.Costs); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint(i)
		if err := os.WriteFile(filepath.Join(dir, name), raw.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		all, list = append(all, m), append(list, []any{name, of.rows, of.columns, of.name})
	}
	short := make([][]any, len(list))
	for i, l := range list {
		short[i] = l[:3]
	}
	raw, err := json.Marshal(short)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "list.json"), raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), python, "-c", scipyScript, dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(all) {
		t.Fatalf("scipy says %q", out)
	}
	for i, line := range lines {
		var scipy struct {
			Cost float64       `json:"cost"`
			Time time.Duration `json:"ns"`
		}
		if err := json.Unmarshal([]byte(line), &scipy); err != nil {
			t.Fatal(err)
		}
		var times []time.Duration
		var of []int
		for range 15 {
			began := time.Now()
			of = Solve(all[i])
			times = append(times, time.Since(began))
		}
		if got := cost(t, all[i], of); math.Abs(got-scipy.Cost) > 1e-9*max(1, math.Abs(scipy.Cost)) {
			t.Errorf("%v: cost %.12g, scipy finds %.12g", list[i][3], got, scipy.Cost)
		}
		t.Logf("beside scipy|%s|%d|%d", list[i][3], slices.Min(times).Nanoseconds(), scipy.Time.Nanoseconds())
	}
}

// similarity makes costs as the comparison of pages has them: from −1 to 1, and a
// third priced out.
func similarity(dice *rand.Rand) func() float64 {
	return func() float64 {
		if dice.IntN(3) == 0 {
			return 1e5
		}
		return dice.Float64()*2 - 1
	}
}
