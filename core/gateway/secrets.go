package gateway

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
)

// secrets are values that must not be recorded or sent to a client: the keys of
// a session, also in their JSON and URL encodings.
type secrets struct{ values [][]byte }

// minSecret is the smallest length in bytes of a key that is removed from text:
// servers that need no key get words such as "EMPTY", which are not secret and
// may occur in a conversation.
const minSecret = 12

// hidden replaces secrets.
var hidden = []byte("[hidden]")

func (s *secrets) add(value string) {
	if len(value) < minSecret {
		return
	}
	forms := []string{value, url.QueryEscape(value), url.PathEscape(value)}
	if b, err := json.Marshal(value); err == nil {
		forms = append(forms, string(b[1:len(b)-1]))
	}
	for _, f := range forms {
		if !slices.ContainsFunc(s.values, func(v []byte) bool { return string(v) == f }) {
			s.values = append(s.values, []byte(f))
		}
	}
}

// clean returns b without secrets. It does not change b.
func (s *secrets) clean(b []byte) []byte {
	for _, v := range s.values {
		if bytes.Contains(b, v) {
			b = bytes.ReplaceAll(b, v, hidden)
		}
	}
	return b
}

func (s *secrets) cleanAll(values []string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(s.clean([]byte(v)))
	}
	return out
}

// filter returns a filter that removes the secrets from bytes that arrive in
// pieces.
func (s *secrets) filter() *filter { return &filter{s: s} }

// filter holds back bytes that may be the beginning of a secret until this is
// known.
type filter struct {
	s    *secrets
	held []byte
}

// next returns the bytes that can be passed on so far. They are valid until the
// next call.
func (f *filter) next(p []byte) []byte {
	if len(f.held) > 0 {
		p = append(f.held, p...)
	}
	p = f.s.clean(p)
	n := len(p)
	for _, v := range f.s.values {
		n = min(n, len(p)-begun(p, v))
	}
	f.held = bytes.Clone(p[n:])
	return p[:n]
}

// rest returns the bytes that were held back at the end.
func (f *filter) rest() []byte { return f.held }

// begun returns how many bytes at the end of p are the beginning of v, but not
// all of it.
func begun(p, v []byte) int {
	for n := min(len(p), len(v)-1); n > 0; n-- {
		if p[len(p)-n] == v[0] && bytes.HasPrefix(v, p[len(p)-n:]) {
			return n
		}
	}
	return 0
}
