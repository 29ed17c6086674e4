package plugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins"
)

// Any executable file may lie in a folder that is searched for plugins: a script
// that removes files, a helper of a plugin, an old version.
func TestOnlyWhatHasTheNameOfAPluginIsStarted(t *testing.T) {
	t.Parallel()
	dir := write(t, "odd", "odd")
	trap := func(path string, mode os.FileMode) {
		t.Helper()
		text := fmt.Sprintf("#!/bin/sh\ntouch '%s'\nexit 1\n", filepath.Join(dir, "STARTED"))
		testlevel.Must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), mode)))
	}
	for _, name := range []string{
		"cleanup", "odd", "berth-plugin-odd.bak", "berth-plugin-", "berth-plugin-Odd", "my-berth-plugin-odd", ".berth-plugin-hidden", "libexec/berth-plugin-deep",
		"berth-plugin-odd/berth-plugin-other", "berth-plugin-script", "berth-plugin-empty/main",
	} {
		trap(filepath.Join(dir, name), 0o700)
	}
	trap(filepath.Join(dir, "berth-plugin-still"), 0o600)
	h, _ := newHost(t, Options{Dirs: []string{dir}})
	list, err := h.List(t.Context())
	testlevel.Must(t, err)
	faults, served := map[string]string{}, 0
	for _, e := range list {
		if e.Error == "" {
			served++
			continue
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(e.Path, dir+"/"), "/")
		faults[name] = e.Error
	}
	if _, err = os.Stat(filepath.Join(dir, "STARTED")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was started that is not a plugin: %v", err)
	}
	for name, want := range map[string]string{
		"berth-plugin-script": "move it and its files to its own folder", "berth-plugin-empty": "must contain the program, an executable file berth-plugin-empty",
		"berth-plugin-still": "chmod +x",
	} {
		if !strings.Contains(faults[name], want) {
			t.Errorf("%s: %q, want %q", name, faults[name], want)
		}
	}
	if len(faults) != 3 || served != 2 {
		t.Errorf("%d plugins are served, faults %v", served, faults)
	}
	var ignored []string
	not, err := h.NotStarted(t.Context())
	for _, path := range not {
		ignored = append(ignored, filepath.Base(path))
	}
	if want := []string{"berth-plugin-", "berth-plugin-Odd", "berth-plugin-odd.bak", "cleanup", "my-berth-plugin-odd", "odd"}; err != nil || !slices.Equal(ignored, want) {
		t.Errorf("not started are %q, %v; want %q", ignored, err, want)
	}
	if _, err = h.Schema(t.Context(), plugins.KindAgent, "cleanup"); err == nil || !strings.Contains(err.Error(), "not started: "+dir+"/berth-plugin-, ") {
		t.Errorf("%v: want a hint at the file of that name", err)
	}
}

// A path that the user gave needs no name, and a plugin of one file needs no folder.
func TestProgramsThatAreNamedByPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeTo(t, filepath.Join(dir, "anything.sh"), "odd")
	h, _ := newHost(t, Options{Programs: []string{filepath.Join(dir, "anything.sh")}, Dirs: []string{}})
	if _, used, err := h.Agent(t.Context(), "odd"); err != nil || used.Digest == "" {
		t.Errorf("used %+v, %v", used, err)
	}
	self, err := os.Executable()
	testlevel.Must(t, err)
	if err = os.Link(self, filepath.Join(dir, "berth-plugin-one")); errors.Is(err, syscall.EXDEV) {
		err = os.CopyFS(dir, os.DirFS(filepath.Dir(self)))
	}
	testlevel.Must(t, err)
	found, _, err := candidates([]string{dir})
	if err != nil || len(found) != 1 || found[0].fault != nil || found[0].folder != "" {
		t.Errorf("found %+v, %v; want the program, which is one file", found, err)
	}
	own := filepath.Dir(programOf(write(t, "odd", "odd"), "odd"))
	if found, _, err = candidates([]string{own}); err != nil || len(found) != 1 || found[0].fault != nil || found[0].folder != own {
		t.Errorf("found %+v, %v; want the program and its folder, which is in the search path itself", found, err)
	}
}

// A module that a script loads decides what the plugin does as much as the script:
// its change must be seen by resume, and by the cache of descriptions.
func TestTheDigestCoversAllFilesOfAFolder(t *testing.T) {
	t.Parallel()
	dir, cache, shared := write(t, "odd", "odd"), filepath.Join(t.TempDir(), "cache"), t.TempDir()
	folder := filepath.Dir(programOf(dir, "odd"))
	digest := func() string {
		t.Helper()
		h, _ := newHost(t, Options{Dirs: []string{dir}, Cache: cache})
		list, err := h.List(t.Context())
		if err != nil || len(list) != 2 || list[0].Error != "" {
			t.Fatalf("List = %+v, %v", list, err)
		}
		return list[0].Digest
	}
	seen := map[string]string{digest(): "as it was"}
	change := func(what string, err error) {
		t.Helper()
		testlevel.Must(t, err)
		d := digest()
		if before := seen[d]; before != "" {
			t.Errorf("%s: the digest is that of %q", what, before)
		}
		seen[d] = what
	}
	module := filepath.Join(folder, "lib", "judge.py")
	change("a module", errors.Join(os.Mkdir(filepath.Dir(module), 0o700), os.WriteFile(module, []byte("limit = 1\n"), 0o600)))
	change("a changed module", os.WriteFile(module, []byte("limit = 2\n"), 0o600))
	change("an executable bit", os.Chmod(module, 0o700))
	change("a link to a folder", errors.Join(os.WriteFile(filepath.Join(shared, "a.py"), nil, 0o600), os.Symlink(shared, filepath.Join(folder, "shared"))))
	change("a file behind the link", os.WriteFile(filepath.Join(shared, "a.py"), []byte("#"), 0o600))
	change("a removed module", os.Remove(module))
	change("a file moved", os.Rename(filepath.Join(shared, "a.py"), filepath.Join(shared, "b.py")))
	before := digest()
	err := errors.Join(os.Mkdir(filepath.Join(folder, "__pycache__"), 0o700), os.WriteFile(filepath.Join(folder, "__pycache__", "x.pyc"), nil, 0o600),
		os.Symlink("..", filepath.Join(folder, "round")), os.Symlink(".", filepath.Join(folder, "self")), os.Symlink("nowhere", filepath.Join(folder, "broken")))
	testlevel.Must(t, errors.Join(err, os.Remove(filepath.Join(folder, "round"))))
	if got := digest(); got != before {
		t.Errorf("caches and links that load nothing change the digest: %s, was %s", got, before)
	}
	testlevel.Must(t, syscall.Mkfifo(filepath.Join(folder, "pipe"), 0o600))
	done := time.AfterFunc(time.Minute, func() { panic("the pipe is read") })
	defer done.Stop()
	if _, err = (program{path: programOf(dir, "odd"), folder: folder}).digest(); err == nil || !strings.Contains(err.Error(), "holds files, folders and links") {
		t.Errorf("digest with a pipe: %v", err)
	}
}

// Who can write to a plugin decides what runs with the user's rights.
func TestPluginsThatOthersCanChangeAreNotStarted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, open, want string }{
		{"the folder of plugins", ".", "who could change what is started: chmod go-w"},
		{"the folder above it", "..", "who could replace"},
		{"the folder of the plugin", "berth-plugin-odd", "chmod go-w"},
		{"the program", "berth-plugin-odd/berth-plugin-odd", "chmod go-w"},
		{"a module", "berth-plugin-odd/lib/judge.py", "chmod go-w"},
		{"a folder of compiled modules", "berth-plugin-odd/lib/__pycache__", "chmod go-w"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "plugins")
			writeTo(t, programOf(dir, "odd"), "odd")
			lib := filepath.Join(dir, "berth-plugin-odd", "lib")
			testlevel.Must(t, errors.Join(os.MkdirAll(filepath.Join(lib, "__pycache__"), 0o700), os.WriteFile(filepath.Join(lib, "judge.py"), nil, 0o600)))
			refused(t, dir, "")
			testlevel.Must(t, os.Chmod(filepath.Join(dir, tt.open), 0o777))
			refused(t, dir, tt.want)
			if tt.open == ".." { // others may own it
				return
			}
			testlevel.Must(t, os.Chmod(filepath.Join(dir, tt.open), 0o770))
			refused(t, dir, tt.want)
			if os.Geteuid() != 0 {
				return
			}
			testlevel.Must(t, errors.Join(os.Chmod(filepath.Join(dir, tt.open), 0o700), os.Chown(filepath.Join(dir, tt.open), 4321, 4321)))
			refused(t, dir, "belongs to user 4321")
		})
	}
}

// refused fails the test unless the plugins in dir are refused with the error want,
// or served if it is empty.
func refused(t *testing.T, dir, want string) {
	t.Helper()
	h, _ := newHost(t, Options{Dirs: []string{dir}})
	list, err := h.List(t.Context())
	if err != nil || len(list) == 0 || (want == "") != (list[0].Error == "") || want != "" && len(list) != 1 || !strings.Contains(list[0].Error, want) {
		t.Errorf("List = %+v, %v; want the error %q", list, err, want)
	}
}
