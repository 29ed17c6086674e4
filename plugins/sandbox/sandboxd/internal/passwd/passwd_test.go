package passwd

import (
	"errors"
	"reflect"
	"testing"

	"github.com/berth-eval/berth/plugins/fault"
)

const (
	users = "# a comment\nroot:x:0:0:root:/root:/bin/sh\nbroken\nbad:x:-1:0::/:\nalice:x:1000:1000:A:/home/alice:/bin/sh\n" +
		"shadowed:x:1000:7::/elsewhere:\nnowhere:x:1001:100::relative:\nhuge:x:4294967295:0::/:\nodd:x:1:1:a:b:c:d:e\n12:x:34:34::/twelve:"
	groups = "root:x:0:\nusers:x:100:alice,nowhere\nstaff:x:50:alice,alice\nbroken:x:y:alice\nlike:x:51:alices,xalice\n"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]User{
		"":           {0, 0, []uint32{0}, "/root"},
		"root":       {0, 0, []uint32{0}, "/root"},
		"alice":      {1000, 1000, []uint32{1000, 100, 50}, "/home/alice"},
		"1000":       {1000, 1000, []uint32{1000, 100, 50}, "/home/alice"},
		"nowhere":    {1001, 100, []uint32{100}, "/"},
		"5555":       {5555, 0, []uint32{0}, "/"},
		"5555:6666":  {5555, 6666, []uint32{6666}, "/"},
		"alice:root": {1000, 0, []uint32{0}, "/home/alice"},
		"12":         {34, 34, []uint32{34}, "/twelve"}, // a name that looks like a number is a name first
	} {
		if got, err := resolve(spec, []byte(users), []byte(groups)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, %v; want %+v", spec, got, err, want)
		}
	}
	for _, spec := range []string{"bob", "alice:bob", "-1", "4294967295", "huge", "bad", " alice", "broken", "odd", "alice:"} {
		if got, err := resolve(spec, []byte(users), []byte(groups)); !errors.Is(err, fault.ErrNotFound) {
			t.Errorf("%q: got %+v, %v; want ErrNotFound", spec, got, err)
		}
	}
	if got, err := resolve("7", nil, nil); err != nil || got.UID != 7 || got.GID != 0 {
		t.Errorf("without files: %+v, %v", got, err)
	}
}

// FuzzResolve: root of the sandbox writes both files.
func FuzzResolve(f *testing.F) {
	f.Add("alice", users, groups)
	f.Add("a:b", "a:::::\n::::::\n", "b::\n:::")
	f.Fuzz(func(t *testing.T, spec, p, g string) {
		u, err := resolve(spec, []byte(p), []byte(g))
		if err == nil && (u.UID == 1<<32-1 || u.GID == 1<<32-1 || len(u.Groups) == 0 || len(u.Groups) > maxGroups || u.Home == "") {
			t.Errorf("%q: %+v", spec, u)
		}
	})
}
