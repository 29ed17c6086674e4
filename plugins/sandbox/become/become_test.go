package become

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestEngineCapsAreThoseOfAnEngine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]int{
		"SYS_PTRACE": unix.CAP_SYS_PTRACE, "SYS_ADMIN": unix.CAP_SYS_ADMIN, "SYS_RESOURCE": unix.CAP_SYS_RESOURCE,
		"SYS_NICE": unix.CAP_SYS_NICE, "NET_ADMIN": unix.CAP_NET_ADMIN, "SYS_MODULE": unix.CAP_SYS_MODULE,
	} {
		if EngineCaps&(1<<c) != 0 {
			t.Errorf("commands could get %s", name)
		}
	}
	// Docker's default set, as in CapBnd of a container of it.
	if EngineCaps != 0xa80425fb {
		t.Errorf("the set is %#x, want Docker's 0xa80425fb", EngineCaps)
	}
}

func TestMapped(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/map"
	for text, want := range map[string]bool{
		"         0          0 4294967295\n": true,
		"0 1000 1\n":                         false,
		"0 1000 1\n1 100000 65535\n":         true,
		"65533 7 1\n":                        true,
		"65534 7 10\n":                       false,
		"0 0 65533\n":                        false,
		"garbage\n0 x 9\n":                   false,
		"":                                   false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := mapped(file, OwnID); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	if mapped(file+".none", OwnID) {
		t.Error("a file that is not there maps something")
	}
}
