package run

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/testlevel"
)

// A run folder may come from somebody else. What plugins print must not get into
// another file of the user, and a pipe must not stop a run.
func TestOutputIsKeptInTheRunFolderOnly(t *testing.T) {
	t.Parallel()
	host, err := plugin.New(plugin.Options{Dirs: []string{}})
	testlevel.Must(t, err)
	defer host.Stop()
	dir := t.TempDir()
	s := &Spec{Store: &store.Run{Dir: dir}, Host: host, Plan: &plan.Plan{}}
	file, other := filepath.Join(dir, store.PluginsFile), filepath.Join(t.TempDir(), "other")
	for name, place := range map[string]func() error{
		"a link": func() error { return os.Symlink(other, file) },
		"a pipe": func() error { return syscall.Mkfifo(file, 0o600) },
	} {
		testlevel.Must(t, place())
		if o, wrong := s.keepOutput(&here{Spec: s}); wrong == nil {
			t.Errorf("%s was written to: %v", name, o.close())
		}
		testlevel.Must(t, os.Remove(file))
	}
	if _, err = os.Stat(other); err == nil {
		t.Error("the file behind the link was made")
	}
	o, err := s.keepOutput(&here{Spec: s})
	if err == nil {
		err = o.close()
	}
	if err != nil {
		t.Error(err)
	}
}
