package page

import (
	"encoding/json"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
)

// Charts returns the charts of the report about the runs as JSON: their
// specifications, and the tables of their rows. It reads no file.
func Charts(runs []numbers.Run, o *Options) ([]byte, error) {
	m, err := counted(runs, o)
	if err != nil {
		return nil, err
	}
	p := m.payload()
	p.Trials = nil
	return json.Marshal(p)
}
