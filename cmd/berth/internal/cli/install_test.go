package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is not a plugin is refused before anything is written.
func TestWhatIsNoPluginIsNotInstalled(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_DATA_HOME", filepath.Join(dir, "data"))
	script := "#!/bin/sh\nexit 3\n"
	write(t, dir, map[string]string{"berth-plugin-evil": script})
	evil := filepath.Join(dir, "berth-plugin-evil")
	if err := os.Chmod(evil, 0o755); err != nil { //nolint:gosec // to be executed
		t.Fatal(err)
	}
	run(t, "berth", "plugin", "install", evil).must(usage("it is a script"))
	if left, err := os.ReadDir(filepath.Join(dir, "data", "berth", "plugins")); err == nil && len(left) > 0 {
		t.Errorf("left %v", left)
	}
	write(t, dir, map[string]string{"tool": script})
	t.Chdir(dir)
	if r := words(t, "plugin install ./tool").must(usage(`install ./tool: "tool" is not the name`)); strings.Count(r.stderr, "tool") != 2 {
		t.Errorf("a program with another name: %s", r.stderr)
	}
}

func TestNothingIsInstalledWhereOthersCanWrite(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_DATA_HOME", filepath.Join(dir, "data"))
	own, program := filepath.Join(dir, "data", "berth", "plugins"), filepath.Join(dir, "berth-plugin-x")
	write(t, dir, map[string]string{"berth-plugin-x": "not started"})
	if err := errors.Join(os.Chmod(program, 0o755), os.MkdirAll(own, 0o755), os.Chmod(own, 0o775)); err != nil { //nolint:gosec // that is the point
		t.Fatal(err)
	}
	run(t, "berth", "plugin", "install", program).must(usage("chmod go-w " + own))
}
