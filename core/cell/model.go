package cell

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
)

// Model is a model of the experiment. The gateway identifies each by its
// pointer, because blocks with the same label differ when a parameter depends
// on the cell.
type Model struct {
	Label    string `json:"label"`
	Provider string `json:"provider"` // the dialect
	Name     string `json:"name"`     // as the provider knows it
	APIKey   *Text  `json:"api_key,omitempty"`
	// APIKeys are several keys in place of APIKey. Requests are shared among
	// them.
	APIKeys []Text `json:"api_keys,omitempty"`
	BaseURL string `json:"base_url,omitempty"` // empty: the provider's own
	CAFile  string `json:"ca_file,omitempty"`  // absolute path of further certificates of authorities; empty: those of the machine
	// Script is the absolute path of the file with the replies of a scripted
	// model, and ScriptDigest its SHA-256, "sha256:" and hex. Both are empty
	// for other models.
	Script       string `json:"script,omitempty"`
	ScriptDigest string `json:"script_digest,omitempty"`
	// Price is nil when it is not known, which differs from a price of zero.
	Price *dialect.Price `json:"price,omitempty"`
	// Parameters is a JSON object that is added to every request; empty means
	// none.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	// AllowModels are other model names that a request may use.
	AllowModels []string `json:"allow_models,omitempty"`
	// AllowHosted are features that the provider may run or fetch for a sandbox
	// without a network, by the names in the gateway's finding.
	AllowHosted []string `json:"allow_hosted,omitempty"`
	// Replay serves the model from the exchanges of that run; empty means no
	// replay.
	Replay string `json:"replay,omitempty"`
	// InFlight is the largest number of concurrent requests with one key; 0
	// lets the gateway adapt it.
	InFlight int `json:"in_flight,omitempty"`
	// ContextTokens is how many input tokens budgets reserve for a request that
	// refers to content stored elsewhere. 0 means the known value of the model.
	ContextTokens int64 `json:"context_tokens,omitempty"`
	// FirstByteTimeout is the longest wait for the first byte of an answer, and
	// IdleTimeout the longest pause within one. Nil means the default of the
	// gateway.
	FirstByteTimeout *time.Duration `json:"first_byte_timeout_ns,omitempty"`
	IdleTimeout      *time.Duration `json:"idle_timeout_ns,omitempty"`
	// Fallback are the models that serve a request, in this order, if this one
	// does not. They have the same provider.
	Fallback []*Model `json:"fallback,omitempty"`
}

// Keys returns the keys of the model, in their order; none if it has none.
func (m *Model) Keys() []Text {
	if m.APIKey != nil {
		return []Text{*m.APIKey}
	}
	return m.APIKeys
}

// ChainKeys returns the keys with which requests for m may be sent: its own, and
// those of its fallbacks. A replayed model asks no provider, so it needs none.
func (m *Model) ChainKeys() (keys []Text) {
	for _, one := range m.Chain() {
		if m.Replay == "" && one.Replay == "" {
			keys = append(keys, one.Keys()...)
		}
	}
	return keys
}

// Chain returns the models that may serve a request for m: m, then its
// fallbacks, each followed by its own, without duplicates.
func (m *Model) Chain() []*Model {
	var chain []*Model
	var add func(*Model)
	add = func(m *Model) {
		if slices.Contains(chain, m) {
			return
		}
		chain = append(chain, m)
		for _, f := range m.Fallback {
			add(f)
		}
	}
	add(m)
	return chain
}

// Info returns the description of the model for plugins.
func (m *Model) Info() model.Info {
	return model.Info{Dialect: model.Dialect(m.Provider), Name: m.Name}
}
