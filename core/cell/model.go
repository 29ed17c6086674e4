package cell

import (
	"encoding/json"
	"time"

	"github.com/berth-eval/berth/plugins/model"
)

// Model is a model of the experiment. The gateway knows each by its pointer:
// blocks of one label differ when a parameter depends on the cell.
type Model struct {
	Label    string `json:"label"`
	Provider string `json:"provider"` // the dialect
	Name     string `json:"name"`     // as the provider knows it
	APIKey   *Text  `json:"api_key,omitempty"`
	BaseURL  string `json:"base_url,omitempty"` // empty: the provider's own
	// Script is the absolute path of the replies of a scripted model, and
	// ScriptDigest the SHA-256 of the file, "sha256:" and hex. Empty without.
	Script       string `json:"script,omitempty"`
	ScriptDigest string `json:"script_digest,omitempty"`
	// Price is nil when it is not known, which is not zero.
	Price *Price `json:"price,omitempty"`
	// Parameters is a JSON object that every request gets; empty means none.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	// AllowModels are further names that a request may ask for.
	AllowModels []string `json:"allow_models,omitempty"`
	// AllowHosted are names of what the provider may fetch or run for a sandbox
	// without a network, as the gateway's finding tells them.
	AllowHosted []string `json:"allow_hosted,omitempty"`
	// MaxRequestMiB is how large a request may be; 0 is the gateway's own bound.
	MaxRequestMiB int64 `json:"max_request_mib,omitempty"`
	// Replay serves the model from the exchanges of that run; empty means not.
	Replay string `json:"replay,omitempty"`
	// InFlight bounds the requests at the same time; 0 lets the gateway adapt.
	InFlight int `json:"in_flight,omitempty"`
	// ReserveOutput is how many tokens of output budgets set aside for a request
	// that does not bound its answer, and ContextTokens how many of input for one
	// that refers to content elsewhere. 0: what is known of the model.
	ReserveOutput int64 `json:"reserve_output,omitempty"`
	ContextTokens int64 `json:"context_tokens,omitempty"`
	// FirstByteTimeout is the longest wait for the first byte of an answer, and
	// IdleTimeout the longest silence in the middle of one. Nil: the gateway's.
	FirstByteTimeout *time.Duration `json:"first_byte_timeout_ns,omitempty"`
	IdleTimeout      *time.Duration `json:"idle_timeout_ns,omitempty"`
}

// Info is what plugins are told of the model.
func (m *Model) Info() model.Info {
	return model.Info{Dialect: model.Dialect(m.Provider), Name: m.Name}
}

// Price is in USD per million tokens. A nil field is not known.
type Price struct {
	Input       *float64 `json:"input,omitempty"`
	CachedInput *float64 `json:"cached_input,omitempty"`
	CacheWrite  *float64 `json:"cache_write,omitempty"`
	CacheHour   *float64 `json:"cache_write_1h,omitempty"`
	Output      *float64 `json:"output,omitempty"`
	// Tiers are by Above, the smallest first.
	Tiers []PriceTier `json:"tiers,omitempty"`
}

// PriceTier are the prices of a request with more than Above input tokens, for
// all of its tokens. A nil field is not known there.
type PriceTier struct {
	Above       int64    `json:"above"`
	Input       *float64 `json:"input,omitempty"`
	CachedInput *float64 `json:"cached_input,omitempty"`
	CacheWrite  *float64 `json:"cache_write,omitempty"`
	CacheHour   *float64 `json:"cache_write_1h,omitempty"`
	Output      *float64 `json:"output,omitempty"`
}
