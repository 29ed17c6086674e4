package testlevel

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"testing"
)

// Program returns the path of a program that a test needs, and skips the test on a
// machine that has not got it: the reason names the package of Debian and Ubuntu.
func Program(t testing.TB, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip(Missing(name, pkg))
	}
	return path
}

// PluginsInPython skips a test of plugins that /usr/bin/python3 runs, where it has no
// gRPC.
func PluginsInPython(t testing.TB) {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import grpc, google.protobuf").Run(); err != nil {
		t.Skip(Missing("gRPC for Python", "python3-grpcio python3-protobuf"))
	}
}

// Account skips a test of a program that works for users with an account only.
func Account(t testing.TB) {
	t.Helper()
	id := strconv.Itoa(os.Getuid())
	if _, err := user.LookupId(id); err != nil {
		t.Skipf("user id %s has no account: useradd --uid %[1]s tester", id)
	}
}

// Missing is the reason of a skip where something is not installed.
func Missing(name, pkg string) string {
	return fmt.Sprintf("%s is not installed: apt-get install %s", name, pkg)
}
