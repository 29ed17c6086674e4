package gateway

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
)

// secrets are what must not be written down, and not be told to a client: the
// keys of a session, also as JSON and addresses write them.
type secrets struct{ values [][]byte }

// minSecret is how long a key must be, in bytes, to be looked for in what is
// said: servers that want none are given words such as "EMPTY", which are no
// secrets, and which a conversation may hold.
const minSecret = 12

// hidden stands in their place.
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

// clean is b without them. b itself is not changed.
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

// filter takes them out of bytes that come in pieces.
func (s *secrets) filter() *filter { return &filter{s: s} }

// filter holds back what may be the beginning of a secret until it is known.
type filter struct {
	s    *secrets
	held []byte
}

// next is what can be passed on of the bytes so far. It is good until the next
// call.
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

// rest is what was held back at the end.
func (f *filter) rest() []byte { return f.held }

// begun is how many bytes at the end of p are the beginning of v, and not all of
// it.
func begun(p, v []byte) int {
	for n := min(len(p), len(v)-1); n > 0; n-- {
		if p[len(p)-n] == v[0] && bytes.HasPrefix(v, p[len(p)-n:]) {
			return n
		}
	}
	return 0
}
