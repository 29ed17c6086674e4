package view

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
)

// The browser gets a file that only this user can read. The token is not an argument of a
// program.
func TestBrowse(t *testing.T) {
	dir := t.TempDir()
	said := filepath.Join(dir, "said")
	script := "#!/bin/sh\nprintf '%s\\n' \"$*\" >" + said + ".part\nstat -c %a \"$1\" >>" + said + ".part\ncat \"$1\" >>" + said + ".part\nmv " + said + ".part " + said + "\n"
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	runtime, err := os.MkdirTemp(testlevel.Tmp(), "bb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(runtime) })
	t.Setenv("BERTH_RUNTIME_DIR", runtime)
	t.Setenv("WAYLAND_DISPLAY", "")
	for _, display := range []string{"", ":1"} {
		t.Setenv("DISPLAY", display)
		leave, err := Browse(t.Context(), "http://127.0.0.1:1/?token=secret")
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		if display != "" {
			testlevel.Eventually(t, "the browser has the address", func() bool { got, _ = os.ReadFile(said); return strings.Contains(string(got), "url=") })
		}
		leave()
		lines := strings.SplitN(string(got), "\n", 3)
		if display == "" {
			continue // nothing was started: the file would be there in the second round
		}
		if len(lines) != 3 || strings.Contains(lines[0], "secret") || lines[1] != "600" || !strings.Contains(lines[2], "url=http://127.0.0.1:1/?token=secret") {
			t.Errorf("the browser got %q", got)
		}
		if _, err = os.Stat(lines[0]); err == nil {
			t.Error("the file is left")
		}
	}
}
