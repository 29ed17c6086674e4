package changes

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/internal/beneath"
)

// The limits on following one service's files.
const (
	mostWords   = 500      // different words of one command line or script
	mostScripts = 100      // scripts that are read
	scriptBytes = 64 << 10 // bytes read of one script
	mostLooked  = 20_000   // names that are looked at
)

// Place says how to resolve the words of a command line.
type Place struct {
	Dir    string
	Lookup func(word string) string // finds a program in PATH; empty if there is none
}

// Words compares the programs and scripts that the words of a command line
// name, also if it is a line for a shell. A word counts if it names an
// executable file or a Python module; data that a service writes does not
// count. A file given to an interpreter, or to a shell's ".", counts whatever
// its mode and name.
func (s *Search) Words(argv []string, p Place) {
	s.line(words(strings.Join(argv, " ")), p.Dir, p.Lookup)
}

// line compares the files that words name, as a path relative to dir or as a
// program.
func (s *Search) line(list []string, dir string, lookup func(string) string) {
	given := false // to an interpreter; words leaves out its options
	for _, word := range list {
		names := candidates(word, dir)
		if program := lookup(word); program != "" {
			names = append(names, program)
		}
		for _, name := range names {
			s.script(name, given)
		}
		given = interprets(word)
	}
}

// interprets reports whether a word is a program that runs the file it is
// given.
func interprets(word string) bool {
	return word == "." || interpreters[strings.TrimRight(path.Base(word), "0123456789.")]
}

// interpreters are programs that run the file they are given, without version
// numbers.
var interpreters = map[string]bool{
	"source": true, "sh": true, "bash": true, "dash": true, "ash": true, "ksh": true, "mksh": true, "zsh": true, "fish": true, "busybox": true,
	"python": true, "pypy": true, "perl": true, "ruby": true, "node": true, "nodejs": true, "bun": true, "deno": true, "php": true, "lua": true,
	"luajit": true, "tclsh": true, "Rscript": true, "julia": true, "guile": true,
}

// Follow reads the scripts that were found so far and compares the files that
// their words name. It does the same with each script that it finds in this
// way.
func (s *Search) Follow(p Place) {
	for i := 0; i < min(len(s.scripts), mostScripts); i++ { // the list grows in the loop
		list := words(content(s.scripts[i]))
		for _, dir := range []string{path.Dir(s.scripts[i]), p.Dir} {
			s.line(list, dir, func(string) string { return "" })
		}
	}
}

// script compares a file if it is a program or a script, or if it is given to
// an interpreter. It notes scripts for Follow.
func (s *Search) script(name string, given bool) {
	what := "as a script: "
	if given {
		what = "as a script that is given: "
	}
	if len(s.looked) > mostLooked || !s.first(what+name) {
		return
	}
	at, st, ok := s.find(name)
	if !ok || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	program := st.Mode&0o111 != 0
	script := sources[path.Ext(at)] || interpreter(at) != "" || given && !program
	if !script && !program {
		return
	}
	s.Program(name)
	if script && s.first("the words of "+at) {
		s.scripts = append(s.scripts, at)
	}
}

// find resolves links like real, but does not compare them.
func (s *Search) find(name string) (at string, st unix.Stat_t, ok bool) {
	blind := Search{After: 1<<63 - 1, folders: s.folders}
	return blind.real(name)
}

// words returns the different words of a text without those that cannot name a
// file. It keeps every occurrence of an interpreter, because the next word is
// the file to run.
func words(text string) (list []string) {
	seen := map[string]bool{}
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n;&|<>(){}[]'\"`=$,", r) }) {
		if len(word) > 1024 || strings.HasPrefix(word, "-") || seen[word] && !interprets(word) {
			continue
		}
		seen[word] = true
		if list = append(list, word); len(list) == mostWords {
			break
		}
	}
	return list
}

// candidates returns the files that a word may name.
func candidates(word, dir string) (names []string) {
	if strings.Contains(word, "/") {
		if !path.IsAbs(word) {
			word = path.Join(dir, word)
		}
		return []string{word, word + "/__main__.py", word + ".js", word + "/index.js"} // python3 /app, require('./lib')
	}
	module, _, _ := strings.Cut(word, ":") // gunicorn app:app
	module = path.Join(dir, strings.ReplaceAll(module, ".", "/"))
	return []string{path.Join(dir, word), module + ".py", module + "/__init__.py", module + "/__main__.py", module + ".pm"}
}

// sources are the endings of files that are run by an interpreter.
var sources = map[string]bool{
	".py": true, ".pyc": true, ".pyz": true, ".sh": true, ".bash": true, ".js": true, ".mjs": true, ".cjs": true, ".ts": true, ".rb": true,
	".pl": true, ".pm": true, ".php": true, ".lua": true, ".tcl": true, ".r": true, ".R": true, ".jl": true, ".ex": true, ".exs": true, ".jar": true, ".war": true,
	".class": true, ".go": true, ".java": true, ".awk": true, ".sql": true,
}

// content returns the beginning of a script.
func content(name string) string {
	fd, st, err := beneath.Regular(name)
	if err != nil {
		return ""
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	b := make([]byte, min(max(st.Size, 0), scriptBytes))
	n, err := unix.Pread(fd, b, 0)
	if err != nil {
		return ""
	}
	return string(b[:n])
}
