package agent

import (
	"encoding/json"
	"fmt"

	"github.com/berth-eval/berth/plugins/config"
)

// ReadConfig reads the configuration of a request into a new C, the struct that
// the plugin announced, with its defaults. An empty configuration has no fields.
// The error is an ErrBadConfig with every problem.
func ReadConfig[C any](raw json.RawMessage) (c C, err error) {
	if ps := config.Validate(raw, &c); len(ps) > 0 {
		return c, fmt.Errorf("%w: %w", ErrBadConfig, config.Problems(ps))
	}
	return c, nil
}
