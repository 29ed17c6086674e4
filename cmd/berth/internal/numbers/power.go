package numbers

import (
	"fmt"
	"math"
)

// Assumptions say how results are expected to vary before there are any.
type Assumptions struct {
	Rate float64 // success rate of both cells
	// ICC is the share of an attempt's variance that is between tasks: 0, all
	// tasks are equally hard; 1, repetitions of a task always agree.
	ICC float64
	// Correlation of the two cells' success rates over tasks.
	Correlation float64
}

// Typical are cautious assumptions: the rate at which results vary most, and a
// task that is hard for one cell is often hard for the other.
var Typical = Assumptions{Rate: 0.5, ICC: 0.5, Correlation: 0.5}

// TestLevel and TestPower are those of Detectable and Needed: a difference is called
// detectable if a two-sided test at 5 % finds it with a probability of 80 %.
const (
	TestLevel = 0.05
	TestPower = 0.8
)

// spread returns the variance of a task's difference between two cells: what
// remains with many repetitions, and what they divide.
func (a Assumptions) spread() (between, within float64) {
	variance := a.Rate * (1 - a.Rate)
	return 2 * variance * a.ICC * (1 - a.Correlation), 2 * variance * (1 - a.ICC)
}

// quantiles is the sum of the normal quantiles of level and power.
func quantiles() float64 {
	return math.Sqrt2 * (math.Erfinv(1-TestLevel) + math.Erfinv(2*TestPower-1))
}

// Detectable returns the smallest difference of two cells' success rates that a
// paired test over tasks, each with so many repetitions, detects: (z₁₋ₐ/₂ +
// z_power)·√(variance of a task's difference / tasks). Fails if there are no tasks
// or repetitions. The result may exceed 1: then nothing is detected.
func Detectable(tasks, repetitions int, a Assumptions) (float64, error) {
	if tasks < 1 || repetitions < 1 {
		return 0, fmt.Errorf("%d tasks with %d repetitions: both must be at least 1", tasks, repetitions)
	}
	between, within := a.spread()
	return quantiles() * math.Sqrt((between+within/float64(repetitions))/float64(tasks)), nil
}

// Needed returns how many repetitions of so many tasks detect a difference. Fails
// if no number of repetitions does, with the smallest difference that any does.
func Needed(tasks int, difference float64, a Assumptions) (int, error) {
	if tasks < 1 || !(difference > 0) {
		return 0, fmt.Errorf("a difference of %g over %d tasks: both must be positive", difference, tasks)
	}
	between, within := a.spread()
	q := quantiles()
	room := difference*difference*float64(tasks)/q/q - between
	if room <= 0 {
		return 0, fmt.Errorf("no number of repetitions of %d tasks detects a difference of %g; with very many it is %.3f: add tasks",
			tasks, difference, q*math.Sqrt(between/float64(tasks)))
	}
	return max(1, int(math.Ceil(within/room-1e-9))), nil
}
