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
func (s *Search) Words(argv []string, p Place) {
	for _, word := range words(strings.Join(argv, " ")) {
		names := candidates(word, p.Dir)
		if program := p.Lookup(word); program != "" {
			names = append(names, program)
		}
		for _, name := range names {
			s.script(name)
		}
	}
}

// Follow reads the scripts that were found so far, and compares the files that
// the words in them name, and so on.
func (s *Search) Follow(p Place) {
	for i := 0; i < min(len(s.scripts), mostScripts); i++ { // it grows
		for _, word := range words(content(s.scripts[i])) {
			for _, dir := range []string{path.Dir(s.scripts[i]), p.Dir} {
				for _, name := range candidates(word, dir) {
					s.script(name)
				}
			}
		}
	}
}

// script compares a file if it is a program or a script, and notes a script for
// Follow.
func (s *Search) script(name string) {
	if len(s.looked) > mostLooked || !s.first("as a script: "+name) {
		return
	}
	at, st, ok := s.find(name)
	if !ok || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	script := sources[path.Ext(at)] || interpreter(at) != ""
	if !script && st.Mode&0o111 == 0 {
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

// words are the different ones in a text, less those that can name no file.
func words(text string) (list []string) {
	seen := map[string]bool{}
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n;&|<>(){}[]'\"`=$,", r) }) {
		if len(word) > 1024 || strings.HasPrefix(word, "-") || seen[word] {
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
		return []string{word}
	}
	module, _, _ := strings.Cut(word, ":") // gunicorn app:app
	module = path.Join(dir, strings.ReplaceAll(module, ".", "/"))
	return []string{path.Join(dir, word), module + ".py", module + "/__init__.py", module + "/__main__.py"}
}

// sources are endings of files that are handed to an interpreter.
var sources = map[string]bool{
	".py": true, ".pyc": true, ".pyz": true, ".sh": true, ".bash": true, ".js": true, ".mjs": true, ".cjs": true, ".ts": true, ".rb": true,
	".pl": true, ".php": true, ".lua": true, ".tcl": true, ".r": true, ".R": true, ".jl": true, ".ex": true, ".exs": true, ".jar": true, ".war": true,
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
