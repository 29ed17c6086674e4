package gateway

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
)

// Variables implements models.Session.
func (s *session) Variables() (keys, addresses map[string]string) {
	keys, addresses = map[string]string{}, map[string]string{}
	names := slices.SortedFunc(maps.Keys(s.endpoints), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
	for _, name := range names {
		e := s.endpoints[name]
		if e.Inside == "" {
			continue
		}
		for _, d := range s.g.o.Dialects.Speaks(s.entries[e.Token].up.model.Provider) {
			v := d.Variables()
			for _, k := range v.Keys {
				keys[k] = cmp.Or(keys[k], e.Token)
			}
			for _, k := range v.Addresses {
				addresses[k] = cmp.Or(addresses[k], e.Inside+pathOf(d.Base()))
			}
		}
	}
	return keys, addresses
}

// rank puts the default model first.
func rank(name string) int {
	if name == "default" {
		return 0
	}
	return 1
}

// pathOf returns the path of a base address.
func pathOf(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return ""
	}
	return u.Path
}
