package system

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Commands is what decides which files the commands of a verification use.
type Commands struct {
	// Env are their variables (K=V). A name may occur several times.
	Env []string `json:"env,omitempty"`
	// Dir is the working folder, absolute; empty: /.
	Dir string `json:"dir,omitempty"`
	// Programs are the first word of each. A name without a slash is searched in PATH,
	// which is the system's.
	Programs []string `json:"programs,omitempty"`
	// Work are folders (absolute) that are work, although they lie in one of the system.
	Work []string `json:"work,omitempty"`
}

// Places are where the files of the system are.
type Places struct {
	Roots []string // absolute; the files at and below them
	Work  []string // folders below roots that are not the system's
	// Python are folders of Python's own modules, in which an interpreter that runs as
	// root writes its caches.
	Python []string
}

// Cache reports whether a name is one of Python's caches of its own modules, or a
// folder of them.
func (p Places) Cache(name string) bool {
	folder := path.Base(name) == pythonCache
	return (folder || path.Base(path.Dir(name)) == pythonCache && strings.HasSuffix(name, ".pyc")) &&
		slices.ContainsFunc(p.Python, func(dir string) bool { return Holds(dir, name) })
}

const pythonCache = "__pycache__"

// Has reports whether a name is the system's.
func (p Places) Has(name string) bool {
	in := func(dir string) bool { return Holds(dir, name) }
	return slices.ContainsFunc(p.Roots, in) && !slices.ContainsFunc(p.Work, in)
}

// Above reports whether a file of the system may lie at or below a name.
func (p Places) Above(name string) bool {
	return slices.ContainsFunc(p.Roots, func(root string) bool { return Holds(name, root) })
}

// Holds reports whether a file is a folder, or lies in it.
func Holds(folder, name string) bool {
	return folder == "/" || name == folder || strings.HasPrefix(name, folder+"/")
}

// system are the folders of the system in every image: programs and libraries, their
// settings, and the databases, caches and hooks of package managers.
var system = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt",
	"/var/lib/dpkg", "/var/lib/apt", "/var/cache/apt", "/var/lib/rpm", "/var/lib/pacman", "/var/spool/cron",
}

// inHome are start-up files and settings in the home folder of a user, which programs
// read or run by themselves.
var inHome = []string{
	".profile", ".bash_profile", ".bash_login", ".bashrc", ".bash_aliases", ".bash_logout", ".zshenv", ".zprofile", ".zshrc", ".zlogin",
	".kshrc", ".mkshrc", ".shrc", ".inputrc", ".pam_environment", ".ssh/config", ".ssh/rc", ".ssh/environment",
	".config", ".curlrc", ".wgetrc", ".netrc", ".gitconfig", ".hgrc", ".docker", ".aws", ".my.cnf", ".pgpass", ".psqlrc", ".sqliterc",
	".pip", ".pydistutils.cfg", ".pypirc", ".condarc", ".npmrc", ".yarnrc", ".yarnrc.yml", ".bunfig.toml", ".gemrc", ".bundle/config",
	".cargo/bin", ".cargo/config", ".cargo/config.toml", ".cargo/env", ".rustup", ".m2/settings.xml", ".gradle/gradle.properties", ".gradle/init.d",
	".gradle/init.gradle", ".Rprofile", ".Renviron", ".juliarc.jl", ".octaverc", ".gdbinit", ".lldbinit", ".vimrc", ".exrc",
	".local/bin", ".local/lib", ".local/share/uv", ".cache/uv",
}

// The variables with folders that are searched. Those of the first kind have programs
// and libraries; those of the second, what an interpreter loads.
var (
	programFolders = []string{"PATH", "LD_LIBRARY_PATH"}
	moduleFolders  = []string{"PYTHONPATH", "PERL5LIB", "PERLLIB", "RUBYLIB", "GEM_PATH", "GEM_HOME", "NODE_PATH", "LUA_PATH", "CLASSPATH", "R_LIBS", "GCONV_PATH"}
	startupFiles   = []string{"BASH_ENV", "ENV", "LD_PRELOAD", "PYTHONSTARTUP", "OPENSSL_CONF", "CURL_HOME"}
)

// defaultPath is where programs are searched without PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

const (
	mostHomes  = 1000    // users
	mostPasswd = 1 << 20 // bytes
	mostLinks  = 40      // for one name, as in the kernel
)

// Find finds the places of the system's files: the system folders of every image,
// the folders in which the commands' programs, libraries and modules are searched, and
// start-up files and settings in every home. All else is the work of the task. A
// folder that is searched and that the task works in, or above it, is work; so is
// a folder of modules below it.
func Find(c Commands) Places {
	p := finder{dir: path.Join("/", c.Dir), found: map[string]bool{}}
	for _, dir := range system {
		p.add(dir)
	}
	homes := append(users(), "/root")
	for _, e := range append(c.Env, "PATH="+defaultPath) {
		name, value, _ := strings.Cut(e, "=")
		if name == "HOME" {
			homes = append(homes, value)
		}
		p.variable(name, value)
	}
	for _, home := range homes {
		for _, name := range inHome {
			p.add(path.Join("/", home, name))
		}
	}
	for _, dir := range loaded() {
		p.folder(dir)
	}
	for _, program := range c.Programs {
		if strings.Contains(program, "/") {
			p.add(p.in(program))
		}
	}
	out := Places{Roots: p.sorted()}
	out.Python = p.pythons()
	for _, dir := range c.Work {
		out.Work = append(out.Work, path.Clean("/"+dir))
	}
	return out
}

// finder collects places.
type finder struct {
	dir      string
	found    map[string]bool
	prefixes []string // of installations with programs
}

// variable adds what a variable of the commands names.
func (p *finder) variable(name, value string) {
	switch {
	case slices.Contains(programFolders, name):
		for dir := range strings.SplitSeq(value, ":") {
			p.programs(p.in(dir))
		}
	case slices.Contains(moduleFolders, name):
		for dir := range strings.SplitSeq(value, ":") {
			if dir = p.in(dir); !Holds(p.dir, dir) {
				p.folder(dir)
			}
		}
	case slices.Contains(startupFiles, name):
		for file := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ':' || r == ' ' }) {
			p.add(p.in(file))
		}
	}
}

// pythons returns the folders of the modules of each Python.
func (p *finder) pythons() (all []string) {
	for _, prefix := range append(p.prefixes, "/usr", "/usr/local") {
		for _, pattern := range []string{"lib/python3*", "lib64/python3*", "lib/pypy3*"} {
			found, _ := filepath.Glob(path.Join(prefix, pattern)) //nolint:errcheck // the patterns are well-formed
			for _, at := range found {
				if !slices.Contains(all, at) && !isLink(at) {
					all = append(all, at)
				}
			}
		}
	}
	return all
}

// in makes a name absolute.
func (p *finder) in(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(p.dir, name)
}

// folder adds a folder, unless the task works in it.
func (p *finder) folder(dir string) bool {
	if Holds(dir, p.dir) {
		return false
	}
	p.add(dir)
	return true
}

// programs adds a folder of programs, and the libraries of its installation, such as a
// virtual environment.
func (p *finder) programs(dir string) {
	if !p.folder(dir) {
		return
	}
	if prefix, last := path.Split(dir); last == "bin" || last == "sbin" {
		p.prefixes = append(p.prefixes, prefix)
		for _, part := range []string{"lib", "lib64", "libexec", "pyvenv.cfg"} {
			p.folder(path.Join(prefix, part))
		}
	}
}

// add adds a file or folder, with the links that lead to it.
func (p *finder) add(name string) {
	at, rest := "/", strings.Split(name, "/")
	for hops := 0; len(rest) > 0; {
		next := rest[0]
		rest = rest[1:]
		if next == "" || next == "." {
			continue
		}
		at = path.Join(at, next)
		target, err := os.Readlink(at)
		if err != nil {
			continue
		}
		p.found[at] = true
		if hops++; hops > mostLinks {
			return
		}
		if at = path.Dir(at); path.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	if at != "/" {
		p.found[at] = true
	}
}

// sorted returns the places without those that lie in others.
func (p *finder) sorted() (names []string) {
	for name := range p.found {
		inside := false
		for dir := path.Dir(name); dir != "/" && !inside; dir = path.Dir(dir) {
			inside = p.found[dir] && !isLink(dir)
		}
		if !inside {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func isLink(name string) bool {
	var st unix.Stat_t
	return unix.Lstat(name, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

// users returns the home folders of the users of the image.
func users() (homes []string) {
	for _, line := range lines("/etc/passwd") {
		if fields := strings.Split(line, ":"); len(fields) > 5 && len(homes) < mostHomes && path.IsAbs(fields[5]) {
			homes = append(homes, fields[5])
		}
	}
	return homes
}

// loaded returns the folders that the settings of the loader name.
func loaded() (dirs []string) {
	files := []string{"/etc/ld.so.conf", "/etc/ld-musl-x86_64.path", "/etc/ld-musl-aarch64.path"}
	entries, _ := os.ReadDir("/etc/ld.so.conf.d")
	for _, e := range entries {
		files = append(files, path.Join("/etc/ld.so.conf.d", e.Name()))
	}
	for _, name := range files {
		for _, line := range lines(name) {
			for dir := range strings.FieldsFuncSeq(line, func(r rune) bool { return r == ':' || r == ' ' || r == '\t' || r == ',' }) {
				if path.IsAbs(dir) {
					dirs = append(dirs, path.Clean(dir))
				}
			}
		}
	}
	return dirs
}

// lines returns the lines of a small regular file of the image, or none.
func lines(name string) []string {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	text := make([]byte, mostPasswd)
	n, _ := f.ReadAt(text, 0)
	return strings.Split(string(text[:n]), "\n")
}
