package cli_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is not a plugin is refused before anything is written.
func TestWhatIsNoPluginIsNotInstalled(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_DATA_HOME", filepath.Join(dir, "data"))
	const name = "berth-plugin-evil"
	script := "#!/bin/sh\nexit 3\n"
	file := func(path string) tar.Header {
		return tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o4777, Size: int64(len(script))}
	}
	for want, entries := range map[string][]tar.Header{
		"the archive: ":                {file("../" + name)},
		"the archive: entry":           {{Name: name, Typeflag: tar.TypeSymlink, Linkname: "/etc"}, file(name + "/" + name)},
		"files and folders at its top": {file(name + "/" + name), file("other")},
		`evil.tar: "evil" is not the name of a plugin: rename`: {file("evil/evil")},
		"ended before": {file(name + "/" + name)},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range entries {
			err := w.WriteHeader(&h)
			if err == nil && h.Size > 0 {
				_, err = io.WriteString(w, script)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		write(t, dir, map[string]string{"evil.tar": b.String()})
		run(t, "berth", "plugin", "install", filepath.Join(dir, "evil.tar")).must(usage(want))
		if left, err := os.ReadDir(filepath.Join(dir, "data", "berth", "plugins")); err == nil && len(left) > 0 {
			t.Errorf("%s: left %v", want, left)
		}
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
