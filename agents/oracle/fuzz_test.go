package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/plugins/agent"
)

// The actions of a solution are refused, or each has a name.
func FuzzActions(f *testing.F) {
	f.Add([]byte(`{"name":"click","arguments":{"bid":"1"}}` + "\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, actionsFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		calls, err := actions(&agent.Setup{Surface: "/s", Reference: &agent.Reference{Folder: dir}})
		if err != nil {
			return
		}
		if len(calls) == 0 {
			t.Error("neither actions nor an error")
		}
		for _, c := range calls {
			if c.Name == "" {
				t.Errorf("%+v has no name", c)
			}
		}
	})
}
