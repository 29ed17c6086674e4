package chat

import (
	"fmt"

	"github.com/berth-eval/berth/plugins/config"
)

// TemperatureProblems says what is wrong with a sampling temperature of a
// configuration; nil leaves it to the provider. No provider takes more than 2.
func TemperatureProblems(at config.Path, t *float64) []config.Problem {
	if t == nil || *t >= 0 && *t <= 2 {
		return nil
	}
	return []config.Problem{{Path: at, Summary: "Temperature is out of range", Detail: fmt.Sprintf("Got %g. Write a number from 0 to 2.", *t)}}
}
