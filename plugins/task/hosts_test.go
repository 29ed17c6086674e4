package task

import (
	"net/netip"
	"testing"
)

func TestHosts(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "*", "a.*.b", "http://a", "a:80", "a/b", "1.2.3", "[::1]", "fe80::1%lo", "a b", "*.10", "10.1.0.0/8"} {
		if r, err := ParseHosts([]string{bad}); err == nil {
			t.Errorf("%q is %+v", bad, r)
		}
	}
	if r, err := ParseHosts([]string{"A.b.", "*.C", "10.0.0.0/8", "::1"}); err != nil || !r.Name("a.b") || !r.Name("x.c") || !r.Lists(netip.MustParseAddr("::1")) {
		t.Errorf("%+v, %v", r, err)
	}
}
