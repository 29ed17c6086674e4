package gateway

import (
	"encoding/json"
	"net/url"

	"github.com/berth-eval/berth/core/redact"
)

// secrets are values that must not be recorded or sent to a client: the keys of
// a session, also in their JSON and URL encodings.
type secrets struct {
	forms  []string
	redact *redact.Redactor
}

// minSecret is the smallest length in bytes of a key that is removed from text:
// servers that need no key get words such as "EMPTY", which are not secret and
// may occur in a conversation.
const minSecret = 12

func (s *secrets) add(value string) {
	if len(value) < minSecret {
		return
	}
	s.forms = append(s.forms, value, url.QueryEscape(value), url.PathEscape(value))
	if b, err := json.Marshal(value); err == nil {
		s.forms = append(s.forms, string(b[1:len(b)-1]))
	}
	s.redact = redact.New(s.forms...)
}

// clean returns b without secrets. It does not change b.
func (s *secrets) clean(b []byte) []byte { return s.redact.Bytes(b) }

func (s *secrets) cleanAll(values []string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(s.clean([]byte(v)))
	}
	return out
}
