package numbers

// Front reports which points no other one beats, given their success rates and
// costs: another would have at least the same rate at no more cost, and be better in
// one of them.
func Front(rates, costs []float64) []bool {
	on := make([]bool, len(rates))
	for i := range rates {
		on[i] = true
		for k := range rates {
			if rates[k] >= rates[i] && costs[k] <= costs[i] && (rates[k] > rates[i] || costs[k] < costs[i]) {
				on[i] = false
			}
		}
	}
	return on
}
