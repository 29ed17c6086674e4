package testlevel

import (
	"fmt"
	"os"
	"os/exec"
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

// Root skips a test of something that only root can do: what is an infinitive.
func Root(t testing.TB, what string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skipf("only root can %s: run the tests as root", what)
	}
}

// The reasons of skips for what a machine or a container may forbid.
const (
	NoNamespaces = "this user may not make a user namespace here: bin/berth doctor says what allows it"
	NoMounts     = "root may not mount here: run the tests outside of a container"
	NoMemory     = "no programs can be kept in memory here: mount -t tmpfs -o mode=1777,exec tmpfs /dev/shm"
)

// Cannot skips a test of something that this machine does not allow. The reason is a
// sentence with the remedy. The error is only in the log of the test: it differs from
// machine to machine, and the table of skips counts reasons.
func Cannot(t testing.TB, reason string, err any) {
	t.Helper()
	t.Log(err)
	t.Skip(reason)
}

// Missing is the reason of a skip where something is not installed.
func Missing(name, pkg string) string {
	return fmt.Sprintf("%s is not installed: apt-get install %s", name, pkg)
}
