package cell

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	pluginconfig "github.com/berth-eval/berth/plugins/config"
)

// ErrSecretMissing means that an environment variable that holds a secret is not set.
var ErrSecretMissing = errors.New("environment variable not set")

// Secret is a value that is read when it is needed, and never printed.
type Secret struct {
	// Label is the value with the secrets' names in place of the secrets:
	// `${secret("KEY")}`. As long as the secrets do not change, equal
	// labels in the same place stand for equal values.
	Label string
	// Read returns the value. Its error does not contain the secret. Safe for
	// concurrent use.
	Read func() (string, error)
}

// Text is a string that may be a secret. Printing or storing it shows only its
// label; see [Text.Reveal]. The zero value is the empty string.
type Text struct {
	plain  string
	secret *Secret
}

// Plain makes a Text that is not a secret.
func Plain(s string) Text { return Text{plain: s} }

// Hidden makes a Text that is a secret.
func Hidden(s *Secret) Text { return Text{secret: s} }

// Secret returns the secret in the text; nil when it has none.
func (t Text) Secret() *Secret { return t.secret }

// String returns the text, or the label of a secret.
func (t Text) String() string {
	if t.secret != nil {
		return t.secret.Label
	}
	return t.plain
}

// GoString keeps %#v from printing more than String.
func (t Text) GoString() string { return fmt.Sprintf("cell.Text(%q)", t.String()) }

// MarshalJSON writes a plain string, or {"secret": label}.
func (t Text) MarshalJSON() ([]byte, error) {
	if t.secret != nil {
		return json.Marshal(map[string]string{"secret": t.secret.Label})
	}
	return json.Marshal(t.plain)
}

// Reveal returns the text itself. An error means that a secret is missing, or
// that an expression of the experiment on it failed; the error does not contain
// the secret. Safe for concurrent use.
func (t Text) Reveal() (string, error) {
	if t.secret != nil {
		return t.secret.Read()
	}
	return t.plain, nil
}

// Values is the configuration of a plugin as strict JSON, with labels in place
// of secrets until it is revealed. Printing or storing it shows only labels.
// The zero value is an absent `config` block.
type Values struct {
	public json.RawMessage
	holes  map[pluginconfig.Path]*Secret
}

// NewValues makes a configuration from JSON with labels in place of secrets,
// and the secrets by their paths.
func NewValues(public json.RawMessage, holes map[pluginconfig.Path]*Secret) Values {
	return Values{public, holes}
}

// Secrets returns the secrets by their paths.
func (v Values) Secrets() map[pluginconfig.Path]*Secret { return v.holes }

// JSON returns the configuration with labels in place of secrets; nil when
// there is none.
func (v Values) JSON() json.RawMessage { return v.public }

// String returns the configuration with labels in place of secrets.
func (v Values) String() string { return string(v.public) }

// GoString keeps %#v from printing more than String.
func (v Values) GoString() string { return fmt.Sprintf("cell.Values(%s)", v.public) }

// MarshalJSON writes the configuration with labels in place of secrets; null
// when there is none.
func (v Values) MarshalJSON() ([]byte, error) {
	if v.public == nil {
		return []byte("null"), nil
	}
	return v.public, nil
}

// Reveal returns the configuration with its secrets; nil when there is none.
// Pass it only to the plugin. Errors as for [Text.Reveal]. Safe for concurrent
// use.
func (v Values) Reveal() (json.RawMessage, error) {
	if len(v.holes) == 0 {
		return v.public, nil
	}
	var tree any
	d := json.NewDecoder(bytes.NewReader(v.public))
	d.UseNumber() // keep integers exact
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	for path, h := range v.holes {
		secret, err := h.Read()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if err := fill(tree, path, secret); err != nil {
			return nil, err
		}
	}
	return json.Marshal(tree)
}

// fill puts a secret in its place in a JSON tree.
func fill(tree any, path pluginconfig.Path, secret string) error {
	steps, err := path.Steps()
	if err != nil || len(steps) == 0 {
		return fmt.Errorf("no place for a secret at %s: %w", path, err)
	}
	at := tree
	for i, s := range steps {
		last := i == len(steps)-1
		switch node := at.(type) {
		case map[string]any:
			if last {
				node[s.Name] = secret
			}
			at = node[s.Name]
		case []any:
			if s.Kind != pluginconfig.StepIndex || s.Index >= len(node) {
				return fmt.Errorf("no place for a secret at %s", path)
			}
			if last {
				node[s.Index] = secret
			}
			at = node[s.Index]
		default:
			return fmt.Errorf("no place for a secret at %s", path)
		}
	}
	return nil
}
