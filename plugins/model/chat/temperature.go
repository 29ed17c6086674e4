package chat

import "github.com/berth-eval/berth/plugins/config"

// TemperatureProblems says what is wrong with a sampling temperature of a
// configuration; nil leaves it to the provider. No provider takes more than 2.
func TemperatureProblems(at config.Path, t *float64) []config.Problem {
	if t == nil {
		return nil
	}
	return config.Range(at, *t, 0, 2)
}
