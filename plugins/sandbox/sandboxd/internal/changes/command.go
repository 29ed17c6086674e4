package changes

import (
	"path"
	"runtime"
	"strings"
)

// Command holds the parts of a command that decide which files it resolves to.
type Command struct {
	Home string
	Dir  string
	Env  func(name string) string
}

// startup are files that loaders and shells read at their start for every user.
// A slash at the end marks a folder: every file in it counts.
var startup = []string{
	"/etc/ld.so.preload", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d/",
	"/etc/ld-musl-x86_64.path", "/etc/ld-musl-aarch64.path",
	"/etc/profile", "/etc/profile.d/", "/etc/environment", "/etc/bash.bashrc", "/etc/bashrc", "/etc/zshenv", "/etc/zsh/zshenv",
}

// startupHome are such files in the home folder of a user.
var startupHome = []string{".profile", ".bash_profile", ".bash_login", ".bashrc", ".bash_logout", ".zshenv"}

// Resolve compares all files that a command resolves to, except its own
// program.
func (s *Search) Resolve(c Command) {
	for _, name := range startup {
		if dir, ok := strings.CutSuffix(name, "/"); ok {
			s.folder(dir, func(string) bool { return true })
		} else {
			s.File(name)
		}
	}
	for _, name := range startupHome {
		s.File(path.Join(c.Home, name))
	}
	for _, name := range []string{"BASH_ENV", "ENV"} {
		if file := c.Env(name); file != "" {
			s.File(c.in(file))
		}
	}
	for _, file := range strings.FieldsFunc(c.Env("LD_PRELOAD"), func(r rune) bool { return r == ' ' || r == ':' }) {
		s.File(c.in(file))
	}
	folders := c.list("PATH")
	for _, dir := range folders {
		s.cover(dir)
	}
	for _, dir := range folders {
		s.folder(dir, nil)
	}
	prefixes := []string{"/", "/usr"}
	for _, dir := range folders {
		if prefix, last := path.Split(path.Clean(dir)); last == "bin" || last == "sbin" {
			prefixes = append(prefixes, prefix)
		}
	}
	for _, prefix := range prefixes {
		s.libraries(prefix)
	}
	for _, dir := range c.list("LD_LIBRARY_PATH") {
		s.folder(dir, isLibrary)
	}
	for _, prefix := range append(prefixes, path.Join(c.Home, ".local")) {
		s.python(prefix)
	}
	for _, dir := range c.list("PYTHONPATH") {
		s.folder(dir, isPythonStartup)
	}
}

// in makes a name in a command absolute.
func (c Command) in(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join("/", c.Dir, name)
}

// list returns the folders in a variable. An empty entry is the working folder,
// as in other programs.
func (c Command) list(name string) (dirs []string) {
	value := c.Env(name)
	if value == "" {
		return nil
	}
	for dir := range strings.SplitSeq(value, ":") {
		dirs = append(dirs, c.in(dir))
	}
	return dirs
}

// triplet is Debian's name for this machine in the names of library folders.
var triplet = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]

// hwcaps is a folder with libraries for certain processors. The loader prefers
// these.
const hwcaps = "glibc-hwcaps"

func isLibrary(name string) bool { return strings.Contains(name, ".so") || name == hwcaps }

// libraries compares the loader and the libraries below a prefix.
func (s *Search) libraries(prefix string) {
	for _, dir := range []string{"lib", "lib64", "lib/" + triplet} {
		dir = path.Join(prefix, dir)
		s.folder(dir, isLibrary)
		for _, level := range s.names(path.Join(dir, hwcaps)) {
			s.folder(path.Join(dir, hwcaps, level), isLibrary)
		}
	}
}

// isPythonStartup picks the files that Python runs before the first line of a
// program.
func isPythonStartup(name string) bool {
	return strings.HasSuffix(name, ".pth") || strings.HasPrefix(name, "sitecustomize") || strings.HasPrefix(name, "usercustomize")
}

// python compares the files that the Pythons below a prefix run at their start.
func (s *Search) python(prefix string) {
	s.File(path.Join(prefix, "pyvenv.cfg"))
	for _, dir := range []string{"lib", "lib64"} {
		lib, _, ok := s.real(path.Join(prefix, dir))
		if !ok || !s.first("the Pythons of "+lib) {
			continue
		}
		for _, name := range s.names(lib) {
			if !strings.HasPrefix(name, "python3") {
				continue
			}
			s.File(path.Join(lib, name)) // python311.zip comes before the folder python3.11
			s.folder(path.Join(lib, name), isPythonStartup)
			for _, packages := range []string{"site-packages", "dist-packages"} {
				s.folder(path.Join(lib, name, packages), isPythonStartup)
			}
		}
	}
}

// names returns the names in a folder, or none if the folder does not exist.
func (s *Search) names(dir string) []string {
	at, _, ok := s.real(dir)
	if !ok {
		return nil
	}
	f, err := open(at)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(tooMany)
	return names
}
