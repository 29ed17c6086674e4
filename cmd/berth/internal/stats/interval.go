package stats

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Method says how an interval was computed.
type Method string

// Methods of intervals.
const (
	// MethodWilson is Wilson's score interval (1927): each task ran once.
	MethodWilson Method = "wilson"
	// MethodCluster is Wilson's interval with the effective number of attempts,
	// from the cluster-robust variance; for scores from 0 to 1.
	MethodCluster Method = "cluster"
	// MethodStudent is the mean ± t·(cluster-robust standard error).
	MethodStudent Method = "student"
)

// Interval is a confidence interval.
type Interval struct {
	Low, High float64
	Level     float64 // such as 0.95
	Method    Method
}

// SE returns the cluster-robust standard error of Mean, where tasks are the
// clusters: √(G/(G−1)·Σe²)/N, with e the sum of a task's deviations from the mean
// (Liang and Zeger, 1986; what statsmodels calls cov_type="cluster"). It takes the
// tasks as a sample of all tasks, and does not take repetitions of a task for
// independent. NaN if there is one task.
func (s *Sample) SE() float64 {
	g, m, sum := float64(len(s.tasks)), s.Mean(), 0.0
	for i := range s.tasks {
		t := &s.tasks[i]
		e := t.sum - float64(len(t.scores))*m
		sum += e * e
	}
	if g < 2 {
		return math.NaN()
	}
	return math.Sqrt(g/(g-1)*sum) / float64(s.n)
}

// Interval returns a confidence interval of Mean in closed form, which takes the
// tasks as a sample. If each task ran once with score 0 or 1, it is Wilson's; for
// other scores from 0 to 1 it is Wilson's with the effective number of attempts;
// else Student's. The bounds are NaN if it is Student's and there is one task.
func (s *Sample) Interval(level float64) Interval {
	m, z := s.Mean(), distuv.UnitNormal.Quantile((1+level)/2)
	switch {
	case s.once():
		low, high := wilson(m, float64(s.n), z)
		return Interval{Low: low, High: high, Level: level, Method: MethodWilson}
	case s.fractions():
		n := s.effective()
		low, high := wilson(m, n, z+s.alike(n)*(s.student(level)-z))
		return Interval{Low: low, High: high, Level: level, Method: MethodCluster}
	default:
		d := s.student(level) * s.SE()
		return Interval{Low: m - d, High: m + d, Level: level, Method: MethodStudent}
	}
}

// student returns the quantile of Student's distribution for an interval.
func (s *Sample) student(level float64) float64 {
	if len(s.tasks) < 2 {
		return math.NaN()
	}
	return distuv.StudentsT{Sigma: 1, Nu: float64(len(s.tasks) - 1)}.Quantile((1 + level) / 2)
}

// wilson returns Wilson's score interval for a rate of n attempts.
func wilson(rate, n, z float64) (low, high float64) {
	d := 1 + z*z/n
	center := (rate + z*z/2/n) / d
	half := z / d * math.Sqrt(rate*(1-rate)/n+z*z/4/n/n)
	return max(0, center-half), min(1, center+half)
}

// unseen is the weight of a task that is always solved, and of one that never
// is, which effective adds to those that were seen. Without them, few successes
// let the variance look too small, and the interval covers too little. The value
// is the one at which the simulation in coverage_test.go is closest to 95 %.
const unseen = 0.1

// effective returns how many independent attempts would make the mean as
// certain as the attempts of the sample do: at least one, at most their number.
func (s *Sample) effective() float64 {
	each := float64(s.n) / float64(len(s.tasks)) // attempts at a task
	n := float64(s.n) + 2*unseen*each
	m := (s.Mean()*float64(s.n) + unseen*each) / n
	g := float64(len(s.tasks)) + 2*unseen
	sum := unseen * each * each * (m*m + (1-m)*(1-m))
	for i := range s.tasks {
		t := &s.tasks[i]
		e := t.sum - float64(len(t.scores))*m
		sum += e * e
	}
	variance := g / (g - 1) * sum / n / n
	return max(1, min(float64(s.n), m*(1-m)/variance*float64(s.n)/n))
}

// alike returns how much attempts at a task are alike, from 0 (not more than attempts
// at different tasks) to 1 (one attempt says it all), if n attempts are effective:
// the intraclass correlation (Kish, 1965, section 5.4).
func (s *Sample) alike(n float64) float64 {
	each := float64(s.n) / float64(len(s.tasks))
	if each <= 1 {
		return 0
	}
	return min(1, max(0, (float64(s.n)/n-1)/(each-1)))
}

// Weighed is a mean in which all groups weigh the same, however many tasks each
// has.
type Weighed struct {
	Mean     float64
	SE       float64 // NaN if a group has one task
	Interval Interval
}

// GroupsEqually returns the mean of the means of the groups. Its interval is
// Student's, with the degrees of freedom of all tasks less the groups.
func (s *Sample) GroupsEqually(level float64) Weighed {
	groups := s.groups()
	w := Weighed{}
	variance, h := 0.0, float64(len(groups))
	for _, g := range groups {
		w.Mean += g.Mean() / h
		variance += g.SE() * g.SE() / h / h
	}
	w.SE = math.Sqrt(variance)
	w.Interval = Interval{Level: level, Method: MethodStudent, Low: math.NaN(), High: math.NaN()}
	if freedom := float64(len(s.tasks)) - h; freedom > 0 {
		d := distuv.StudentsT{Sigma: 1, Nu: freedom}.Quantile((1+level)/2) * w.SE
		w.Interval.Low, w.Interval.High = w.Mean-d, w.Mean+d
	}
	return w
}
