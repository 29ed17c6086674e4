package changes

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/internal/beneath"
)

// Bounds of what is followed of one service.
const (
	mostWords   = 500      // different ones of one command line or script
	mostScripts = 100      // that are read
	scriptBytes = 64 << 10 // of one script
	mostLooked  = 20_000   // names
)

// Place is where the words of a command line mean something.
type Place struct {
	Dir    string
	Lookup func(word string) string // a program in PATH; empty: there is none
}

// Words compares the programs and scripts that the words of a command line
// name, also those of a line for a shell. A word counts when it names a file
// that can be run, or a module of Python: data that a service writes does not.
// What an interpreter is given, or a shell's ".", counts whatever its mode and
// name.
func (s *Search) Words(argv []string, p Place) {
	s.line(words(strings.Join(argv, " ")), p.Dir, p.Lookup)
}

// line compares what words name, by their path from dir or as a program.
func (s *Search) line(list []string, dir string, lookup func(string) string) {
	given := false // to an interpreter, whose options words leaves out
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

// interprets says whether a word is a program that runs the file it is given.
func interprets(word string) bool {
	return word == "." || interpreters[strings.TrimRight(path.Base(word), "0123456789.")]
}

// interpreters are programs that run the file they are given, without versions.
var interpreters = map[string]bool{
	"source": true, "sh": true, "bash": true, "dash": true, "ash": true, "ksh": true, "mksh": true, "zsh": true, "fish": true, "busybox": true,
	"python": true, "pypy": true, "perl": true, "ruby": true, "node": true, "nodejs": true, "bun": true, "deno": true, "php": true, "lua": true,
	"luajit": true, "tclsh": true, "Rscript": true, "julia": true, "guile": true,
}

// Follow reads the scripts that were found so far, and compares the files that
// the words in them name, and so on.
func (s *Search) Follow(p Place) {
	for i := 0; i < min(len(s.scripts), mostScripts); i++ { // it grows
		list := words(content(s.scripts[i]))
		for _, dir := range []string{path.Dir(s.scripts[i]), p.Dir} {
			s.line(list, dir, func(string) string { return "" })
		}
	}
}

// script compares a file if it is a program or a script, or is given to an
// interpreter, and notes a script for Follow.
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

// find is real without comparing the links on the way.
func (s *Search) find(name string) (at string, st unix.Stat_t, ok bool) {
	blind := Search{After: 1<<63 - 1, folders: s.folders}
	return blind.real(name)
}

// words are the different ones in a text, less those that can name no file. What
// runs the file after it is kept each time.
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

// candidates are the files that a word may name.
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

// sources are endings of files that are handed to an interpreter.
var sources = map[string]bool{
	".py": true, ".pyc": true, ".pyz": true, ".sh": true, ".bash": true, ".js": true, ".mjs": true, ".cjs": true, ".ts": true, ".rb": true,
	".pl": true, ".pm": true, ".php": true, ".lua": true, ".tcl": true, ".r": true, ".R": true, ".jl": true, ".ex": true, ".exs": true, ".jar": true, ".war": true,
	".class": true, ".go": true, ".java": true, ".awk": true, ".sql": true,
}

// content is the beginning of a script.
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
