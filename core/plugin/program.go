package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/berth-eval/berth/plugins"
)

// program is a plugin binary as it is on disk.
type program struct {
	path string
	// folder, if not empty, belongs to the program with all of its files, and the
	// digest covers them.
	folder string
}

// name returns what messages call the program.
func (p program) name() string { return nameOf(p.path) }

func nameOf(path string) string {
	return strings.TrimPrefix(filepath.Base(path), plugins.ProgramPrefix)
}

var programName = regexp.MustCompile(`^` + plugins.ProgramPrefix + `[a-z][a-z0-9_-]{0,63}$`)

// programAt returns the program at a path that the user named. Its name is free.
// If the folder that it is in has its name, the folder belongs to it.
func programAt(path string) (program, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return program{}, err
	}
	p := program{path: abs}
	if dir := filepath.Dir(abs); filepath.Base(dir) == filepath.Base(abs) && programName.MatchString(filepath.Base(abs)) {
		p.folder = dir
	}
	return p, nil
}

// programIn returns the plugin that an entry of a plugin folder is: an executable
// file berth-plugin-NAME, or a folder of this name that has such a file. An entry
// with another name is never a plugin. Then the error is errNotNamed if it is an
// executable file, and fs.ErrNotExist otherwise. Any other error says what is
// wrong with an entry that has the right name.
func programIn(dir, name string) (program, error) {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	executable := err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
	switch {
	case !programName.MatchString(name) && executable && !strings.HasPrefix(name, "."):
		return program{}, errNotNamed
	case !programName.MatchString(name):
		return program{}, fs.ErrNotExist
	case err != nil:
		return program{path: path}, fmt.Errorf("look for plugins: %w", err)
	case info.IsDir():
		p := program{path: filepath.Join(path, name), folder: path}
		info, err = os.Stat(p.path)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return p, fmt.Errorf("the folder of a plugin must contain the program, an executable file %s", name)
		}
		return p, nil
	case !executable:
		return program{path: path}, fmt.Errorf("it cannot be executed: chmod +x %s", path)
	}
	p, err := programAt(path) // dir may be the plugin itself
	if err == nil && p.folder == "" && isScript(path) {
		return p, fmt.Errorf("it is a script, which may load files that lie beside it: move it and its files to its own folder, %s/, "+
			"so that its digest covers them", path)
	}
	return p, err
}

// errNotNamed means that an executable file is not started because of its name.
var errNotNamed = errors.New("its name does not begin with " + plugins.ProgramPrefix)

func isScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // only read
	var magic [2]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && magic == [2]byte{'#', '!'}
}

// onlyOurs returns an error if a user who could not also change this program,
// berth, owns the file or folder or can write to it.
func onlyOurs(path string, info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() && int(st.Uid) != ownerOfBerth() {
		return fmt.Errorf("%s belongs to user %d, who could change what is started: chown it, or copy it", path, st.Uid)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s can be written to by others (mode %#o), who could change what is started: chmod go-w %s", path, info.Mode().Perm(), path)
	}
	return nil
}

// ownerOfBerth returns the user that owns the running executable, or -1. Who owns
// it decides what happens here, not the owner of a plugin.
func ownerOfBerth() int {
	exe, err := os.Executable()
	if err != nil {
		return -1
	}
	info, err := os.Stat(exe)
	if err != nil {
		return -1
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// SafeFolder returns an error if others can decide which files a plugin folder
// contains.
func SafeFolder(dir string) error {
	folder, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	info, err := os.Stat(folder)
	if err != nil {
		return err
	}
	if err = onlyOurs(folder, info); err != nil {
		return err
	}
	above := filepath.Dir(folder) // who can write to it can put another folder in its place
	if info, err = os.Stat(above); err != nil {
		return err
	}
	if info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("%s can be written to by others (mode %#o), who could replace %s: chmod o-w %s", above, info.Mode().Perm(), folder, above)
	}
	return nil
}

// safe returns an error if others can write to a file or folder of the program.
func (p program) safe() error {
	return p.walk(func(path, _ string, info fs.FileInfo) error {
		if err := onlyOurs(path, info); err != nil || !info.IsDir() || p.folder == "" {
			return err
		}
		cache := filepath.Join(path, cacheName) // from which the interpreter loads code
		if info, err := os.Stat(cache); err == nil {
			return onlyOurs(cache, info)
		}
		return nil
	})
}

// cacheName is the folder into which Python writes compiled modules.
const cacheName = "__pycache__"

// skipped are names of files and folders that are not part of a plugin: caches
// that an interpreter writes while the plugin runs, and what git keeps.
var skipped = map[string]bool{cacheName: true, ".git": true}

// Walk calls each for the plugin at path, a file or folder with the name of a
// plugin: for every file and folder that its digest covers, sorted by name within a
// folder. It follows links, so that each sees what the program would load. name is
// the path relative to the plugin, and empty for the plugin itself.
func Walk(path string, each func(path, name string, info fs.FileInfo) error) error {
	p, err := programIn(filepath.Dir(path), filepath.Base(path))
	switch {
	case errors.Is(err, errNotNamed), errors.Is(err, fs.ErrNotExist) && p.path == "":
		return fmt.Errorf("%q is not the name of a plugin: rename the file or folder to berth-plugin-NAME, with lower case letters, digits, - and _", filepath.Base(path))
	case err != nil:
		return err
	}
	return p.walk(each)
}

// walk does the work of Walk. A link that leads nowhere, or back to a folder that
// it is in, has the info of the link.
func (p program) walk(each func(path, name string, info fs.FileInfo) error) error {
	info, err := os.Stat(p.path)
	if err != nil {
		return fmt.Errorf("look at plugin binary: %w", err)
	}
	if p.folder == "" {
		return each(p.path, "", info)
	}
	if info, err = os.Stat(p.folder); err != nil {
		return fmt.Errorf("look at plugin: %w", err)
	}
	return walker(each).folder(p.folder, "", info, nil)
}

// walker is called for each file and folder of a plugin that is a folder.
type walker func(path, name string, info fs.FileInfo) error

// folder walks one folder; inside are the folders that it is in.
func (w walker) folder(dir, name string, info fs.FileInfo, inside []fs.FileInfo) error {
	if err := w(dir, name, info); err != nil {
		return err
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look at plugin: %w", err)
	}
	inside = append(slices.Clip(inside), info)
	for _, e := range list {
		if skipped[e.Name()] {
			continue
		}
		if err := w.entry(filepath.Join(dir, e.Name()), filepath.Join(name, e.Name()), inside); err != nil {
			return err
		}
	}
	return nil
}

func (w walker) entry(path, name string, inside []fs.FileInfo) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) {
		info, err = os.Lstat(path)
	}
	if err != nil {
		return fmt.Errorf("look at plugin: %w", err)
	}
	for _, above := range inside {
		if os.SameFile(above, info) {
			if info, err = os.Lstat(path); err != nil {
				return fmt.Errorf("look at plugin: %w", err)
			}
			break
		}
	}
	switch {
	case info.IsDir():
		return w.folder(path, name, info, inside)
	case info.Mode()&fs.ModeSymlink != 0:
		return nil // it loads nothing
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is a %s: the folder of a plugin holds files, folders and links", path, info.Mode().Type())
	}
	return w(path, name, info)
}

// stamp identifies the state of a program's files: it changes when one of them is
// written, replaced, added or removed.
type stamp struct {
	Path  string `json:"path"`
	State string `json:"state"`    // for a folder, a digest of the states of its files
	CTime int64  `json:"ctime_ns"` // of the last change; cannot be set back by a writer of a file
}

func (p program) stamp() (stamp, error) {
	s, sum := stamp{Path: p.path}, sha256.New()
	err := p.walk(func(_, name string, info fs.FileInfo) error {
		sys, ok := info.Sys().(*syscall.Stat_t)
		if info.IsDir() || !ok {
			return nil
		}
		s.CTime = max(s.CTime, sys.Ctim.Nano())
		fmt.Fprintf(sum, "%d:%s %o %d %d %d %d %d\n", len(name), name, info.Mode(), sys.Dev, sys.Ino, info.Size(), info.ModTime().UnixNano(), sys.Ctim.Nano())
		return nil
	})
	s.State = hex.EncodeToString(sum.Sum(nil))
	return s, err
}

// digest returns the SHA-256 of the program, as "sha256:…": of the file, or of
// the names, executable bits and contents of all files in its folder.
func (p program) digest() (string, error) {
	sum := sha256.New()
	err := p.walk(func(path, name string, info fs.FileInfo) error {
		if info.IsDir() {
			return nil
		}
		if p.folder != "" {
			kind := "f"
			if info.Mode()&0o111 != 0 {
				kind = "x"
			}
			fmt.Fprintf(sum, "%s %d:%s %d\n", kind, len(name), filepath.ToSlash(name), info.Size())
		}
		return addFile(sum, path, info.Size())
	})
	if err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

func addFile(sum hash.Hash, path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read plugin: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	n, err := io.Copy(sum, io.LimitReader(f, size+1))
	if err != nil {
		return fmt.Errorf("read plugin %s: %w", path, err)
	}
	if n != size {
		return fmt.Errorf("read plugin: %s changed while it was read", path)
	}
	return nil
}
