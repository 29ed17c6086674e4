package system

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// tree is a file system; root is "/" but in tests.
type tree struct{ root string }

func (t tree) at(name string) string { return filepath.Join(t.root, name) }

// folders are system files with all their content, in every image.
var folders = []string{
	"/etc/ld.so.conf.d", "/etc/profile.d", "/etc/zsh", "/etc/fish", "/etc/pam.d", "/etc/security", "/etc/alternatives", "/etc/perl", "/etc/python3",
	"/usr/share/perl", "/usr/share/perl5", "/usr/local/share/perl", "/usr/share/nodejs", "/usr/share/php", "/usr/share/python3", "/usr/share/awk",
}

// single are files that loaders, shells, PAM, and programs that look up a user
// read at their start.
var single = []string{
	"/etc/ld.so.preload", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld-musl-x86_64.path", "/etc/ld-musl-aarch64.path",
	"/etc/profile", "/etc/environment", "/etc/bash.bashrc", "/etc/bash.bash_logout", "/etc/bashrc", "/etc/zshenv", "/etc/zprofile", "/etc/zshrc",
	"/etc/zlogin", "/etc/pam.conf", "/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf",
	// They decide as whom a command runs, with which home and shell.
	"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/nsswitch.conf",
}

// inHome are such files and folders in the home folder of a user.
var inHome = []string{
	".profile", ".bash_profile", ".bash_login", ".bashrc", ".bash_aliases", ".bash_logout", ".zshenv", ".zprofile", ".zshrc", ".zlogin", ".kshrc",
	".pam_environment", ".config/fish", ".local/bin", ".local/lib",
}

// parts are the folders of programs and libraries below a prefix.
var parts = []string{"bin", "sbin", "games", "lib", "lib32", "lib64", "libx32", "libexec"}

// usual is where programs are searched when PATH does not say it.
const usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Limits of what is read of a sandbox that an agent had.
const (
	mostLinks   = 40      // for one name, as in the kernel
	mostHomes   = 1000    // users
	mostPasswd  = 1 << 20 // bytes
	mostEntries = 500_000 // in library folders
)

// places are where system files are.
type places struct {
	t       tree
	dir     string          // the working folder
	whole   map[string]bool // files and folders, with all their content
	startup map[string]bool // folders in which only Python's start-up files count
	homes   []string
	open    []string
}

// places finds where the system files of the commands are.
func (t tree) places(q Query) *places {
	p := &places{t: t, dir: path.Clean("/" + q.Dir), whole: map[string]bool{}, startup: map[string]bool{}}
	for _, dir := range Folders() {
		p.folder(dir)
	}
	for _, name := range single {
		p.add(name)
	}
	env := func(name string) (value string) {
		for _, e := range q.Env {
			if v, ok := strings.CutPrefix(e, name+"="); ok {
				value = v
			}
		}
		return value
	}
	p.homes = append(t.homes(), path.Clean("/"+env("HOME")), path.Clean("/"+env("ZDOTDIR")))
	slices.Sort(p.homes)
	p.homes = slices.Compact(p.homes)
	for _, home := range p.homes {
		for _, name := range inHome {
			p.add(path.Join(home, name))
		}
	}
	for _, name := range []string{"BASH_ENV", "ENV", "LD_PRELOAD", "LD_AUDIT", "PYTHONSTARTUP"} {
		for _, file := range strings.FieldsFunc(env(name), func(r rune) bool { return r == ' ' || r == ':' }) {
			p.add(p.in(file))
		}
	}
	for _, dir := range p.list(env("PYTHONPATH")) {
		at, _ := p.real(dir)
		p.startup[at] = true
	}
	for _, program := range q.Programs {
		if strings.Contains(program, "/") {
			p.add(p.in(program))
		}
	}
	for _, dir := range slices.Concat(p.list(env("LD_LIBRARY_PATH")), p.list(env("PYTHONHOME"))) {
		p.folder(dir)
	}
	for _, dir := range slices.Concat(p.list(usual), p.list(env("PATH"))) {
		p.programs(dir)
	}
	p.libraries()
	return p
}

// homes returns the home folders of the users.
func (t tree) homes() (all []string) {
	name := t.at("/etc/passwd")
	if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() || info.Size() > mostPasswd {
		return []string{"/root"}
	}
	b, _ := os.ReadFile(name)
	for line := range strings.Lines(string(b)) {
		if f := strings.Split(line, ":"); len(f) >= 6 && path.IsAbs(f[5]) && len(all) < mostHomes {
			all = append(all, path.Clean(f[5]))
		}
	}
	return append(all, "/root")
}

// in makes a name in a command absolute.
func (p *places) in(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(p.dir, name)
}

// list returns the folders in the value of a variable. An empty entry is the
// working folder, as in other programs.
func (p *places) list(value string) (dirs []string) {
	if value == "" {
		return nil
	}
	for dir := range strings.SplitSeq(value, ":") {
		dirs = append(dirs, p.in(dir))
	}
	return dirs
}

// holds reports whether dir is or contains name.
func holds(dir, name string) bool {
	return dir == name || dir == "/" || strings.HasPrefix(name, dir+"/")
}

// real resolves all links in a name, and returns the links on the way. What does
// not exist stays as it is.
func (p *places) real(name string) (at string, links []string) {
	at = "/"
	for rest := strings.Split(name, "/"); len(rest) > 0; {
		next := rest[0]
		rest = rest[1:]
		if next == "" || next == "." {
			continue
		}
		if next == ".." {
			at = path.Dir(at)
			continue
		}
		next = path.Join(at, next)
		target, err := os.Readlink(p.t.at(next))
		if err != nil {
			at = next
			continue
		}
		if links = append(links, next); len(links) > mostLinks {
			return next, links
		}
		if path.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, links
}

// add adds a file or folder, with the links that lead to it.
func (p *places) add(name string) {
	at, links := p.real(name)
	for _, l := range append(links, at) {
		if l != "/" {
			p.whole[l] = true
		}
	}
}

// folder adds a folder with all its content, unless the task works in it.
func (p *places) folder(dir string) bool {
	at, _ := p.real(dir)
	if work, _ := p.real(p.dir); holds(at, work) {
		if !slices.Contains(p.open, dir) {
			p.open = append(p.open, dir)
		}
		return false
	}
	p.add(dir)
	return true
}

// programs adds a folder of programs, and the installation to which it belongs.
func (p *places) programs(dir string) {
	if !p.folder(dir) {
		return
	}
	at, _ := p.real(dir)
	p.installation(at)
	entries, err := os.ReadDir(p.t.at(at))
	if err != nil {
		return
	}
	work, _ := p.real(p.dir)
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		name := path.Join(at, e.Name())
		to, links := p.real(name)
		if p.is(to) && !slices.ContainsFunc(links, func(l string) bool { return !p.is(l) }) || holds(work, to) || to == "/" {
			continue
		}
		p.add(name)
		p.installation(path.Dir(to))
	}
}

// installation adds the folder that has a folder of programs, as of a virtual
// environment or a language in /opt. If it is that of the whole system, of a user
// or of the task, only its libraries belong to the programs.
func (p *places) installation(bin string) {
	prefix, last := path.Split(bin)
	prefix = path.Clean(prefix)
	if last != "bin" && last != "sbin" || slices.Contains([]string{"/", "/usr", "/usr/local"}, prefix) {
		return
	}
	work, _ := p.real(p.dir)
	switch {
	case prefix == work:
	case holds(prefix, work), slices.Contains(p.homes, prefix):
		for _, part := range parts {
			if dir := path.Join(prefix, part); !holds(dir, work) {
				p.add(dir)
			}
		}
		p.add(path.Join(prefix, "pyvenv.cfg"))
	default:
		p.add(prefix)
	}
}

// libraries adds the targets of links in folders of libraries.
func (p *places) libraries() {
	left := mostEntries
	for _, dir := range p.sorted() {
		if base := path.Base(dir); !strings.HasPrefix(base, "lib") {
			continue
		}
		_ = filepath.WalkDir(p.t.at(dir), func(name string, e fs.DirEntry, err error) error {
			if left--; err != nil || left < 0 {
				return fs.SkipDir
			}
			if e.Type()&fs.ModeSymlink == 0 || !strings.Contains(e.Name(), ".so") && !startsPython(e.Name()) {
				return nil
			}
			rel, err := filepath.Rel(p.t.root, name)
			if to, _ := p.real("/" + rel); err == nil && !p.is(to) {
				p.add("/" + rel)
			}
			return nil
		})
	}
}

// startsPython picks the files that Python runs before the first line of a
// program.
func startsPython(name string) bool {
	return strings.HasSuffix(name, ".pth") || strings.HasPrefix(name, "sitecustomize") || strings.HasPrefix(name, "usercustomize")
}

// is reports whether a name is that of a system file.
func (p *places) is(name string) bool {
	for dir := name; dir != "/" && dir != "."; dir = path.Dir(dir) {
		if p.whole[dir] {
			return true
		}
	}
	return p.startup[path.Dir(name)] && startsPython(path.Base(name))
}

// sorted returns whole without what is below others.
func (p *places) sorted() (names []string) {
	for name := range p.whole {
		if dir := path.Dir(name); dir == "/" || !p.is(dir) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Folders returns folders that are system files in every image, with all their
// content.
func Folders() (all []string) {
	for _, prefix := range []string{"/", "/usr", "/usr/local"} {
		for _, part := range parts {
			all = append(all, path.Join(prefix, part))
		}
	}
	return append(all, folders...)
}
