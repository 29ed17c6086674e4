package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/testlevel"
)

// A plan that was edited by hand or cut must not be run, because trials would
// silently be missing.
func TestAManifestThatIsNotWholeIsRefused(t *testing.T) {
	t.Parallel()
	r := create(t, 3)
	testlevel.Must(t, r.Close())
	whole, err := os.ReadFile(filepath.Join(r.Dir, store.ManifestFile))
	testlevel.Must(t, err)
	lines := strings.SplitAfter(strings.TrimSuffix(string(whole), "\n"), "\n")
	for name, tt := range map[string]struct{ text, err string }{
		"empty":                  {"", "it is empty"},
		"a trial less":           {strings.Join(lines[:len(lines)-1], ""), "2 trials of 3"},
		"half a line":            {string(whole[:len(whole)-20]), "line 5"},
		"no header":              {strings.Join(lines[1:], ""), "does not describe the run"},
		"two headers":            {lines[0] + lines[0], "second run"},
		"another version":        {strings.Replace(string(whole), `"version":1`, `"version":9`, 1), "has version 9"},
		"a trial without a cell": {strings.Replace(string(whole), `"cell":0`, `"cell":7`, 1), "cell 7 of 1"},
		"a folder outside":       {strings.Replace(string(whole), `"dir":"task`, `"dir":"../task`, 1), "folder"},
		"an empty line of JSON":  {lines[0] + "{}\n", "neither a cell nor a trial"},
		"cells out of order":     {strings.Replace(string(whole), `"index":0`, `"index":1`, 1), "is at position"},
	} {
		dir := t.TempDir()
		testlevel.Must(t, os.WriteFile(filepath.Join(dir, store.ManifestFile), []byte(tt.text), 0o600))
		if _, err = store.ReadManifest(dir); err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want an error with %q", name, err, tt.err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"run":{"version":1,"trials":0}}`))
	f.Add([]byte("{\"run\":{\"version\":1,\"trials\":1}}\n{\"cell\":{}}\n{\"trial\":{\"id\":\"x\",\"dir\":\"y\"}}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		testlevel.Must(t, os.WriteFile(filepath.Join(dir, store.ManifestFile), b, 0o600))
		m, err := store.ReadManifest(dir)
		if err != nil {
			return
		}
		for i := range m.Trials {
			if d := m.Trials[i].Dir; !filepath.IsLocal(d) || m.Trials[i].Cell >= len(m.Cells) {
				t.Errorf("took trial %+v", m.Trials[i])
			}
		}
	})
}
