package gateway

import (
	"encoding/json"
	"time"

	"github.com/berth-eval/berth/core/gateway/wire"
)

// Names in the folder of an attempt.
const (
	RecordDir     = "model"
	ExchangesFile = RecordDir + "/exchanges.jsonl"
)

// Exchange is one line of exchanges.jsonl: a request and what came of it,
// without their bodies.
type Exchange struct {
	Time      time.Time       `json:"time"`
	Role      string          `json:"role"`
	Name      string          `json:"name"` // by which the plugin asks for the model
	Model     string          `json:"model"`
	Asked     string          `json:"asked,omitempty"` // the model that was asked for, when it was another
	Dialect   string          `json:"dialect"`
	Stream    bool            `json:"stream,omitempty"`
	Retry     bool            `json:"retry,omitempty"`    // of a request that had no success
	Status    int             `json:"status"`             // of HTTP; 0: there was no answer
	Error     string          `json:"error,omitempty"`    // what the gateway said itself
	Upstream  string          `json:"upstream,omitempty"` // what the provider said went wrong
	Broken    string          `json:"broken,omitempty"`   // who ended the answer before its end: provider or client
	Usage     *wire.Usage     `json:"usage,omitempty"`
	Estimated bool            `json:"estimated,omitempty"` // the provider did not say all of the usage
	Raw       json.RawMessage `json:"raw_usage,omitempty"` // the provider's own record of it
	CostUSD   *float64        `json:"cost_usd,omitempty"`  // absent: not known
	Tries     int             `json:"tries,omitempty"`     // that the provider refused or failed before this answer
	Waited    time.Duration   `json:"waited_ns,omitempty"` // for room in a budget, or for a provider
	FirstByte time.Duration   `json:"first_byte_ns,omitempty"`
	Took      time.Duration   `json:"took_ns,omitempty"`

	written bool
}

// record writes a line down, once.
func (s *session) record(line *Exchange) {
	if line.written || s.spec.Append == nil {
		return
	}
	line.written = true
	s.spec.Append(ExchangesFile, line)
}
