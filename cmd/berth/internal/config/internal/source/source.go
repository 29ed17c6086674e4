// Package source reads the files of an experiment: parsing with limits, checks
// of names, the evaluation of a block into JSON by the fields that it has, and
// the places of problems. It does not know which blocks there are.
package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Limits of the files of an experiment.
const (
	MaxFile  = 1 << 20 // bytes of one file
	maxFiles = 200     // *.hcl in one folder
	// maxNesting bounds brackets in brackets, maxOperators the operators of one
	// expression.
	maxNesting   = 200
	maxOperators = 1000
)

// Source is the parsed files of an experiment.
type Source struct {
	Dir    string // as given by the user, for the names of files
	Files  map[string]*hcl.File
	Bodies []*hclsyntax.Body // in the order of the names of the files
	// Given are the bytes of the files, by name within Dir.
	Given map[string][]byte
	// Unreadable says that a file could not be read or parsed, so that what
	// the others lack may stand there.
	Unreadable bool
}

// Open reads path, a file or a folder of *.hcl files, and parses it.
func Open(path string) (*Source, hcl.Diagnostics) {
	s := &Source{Dir: path, Files: map[string]*hcl.File{}, Given: map[string][]byte{}}
	info, err := os.Stat(path)
	if err != nil {
		s.Unreadable = true
		return s, Problem("No experiment", "%s: %s. Name an *.hcl file, or a folder with *.hcl files.", path, Plain(err))
	}
	names := []string{filepath.Base(path)}
	if info.IsDir() {
		names, err = hclFiles(path)
	} else {
		s.Dir = filepath.Dir(path)
	}
	if err != nil {
		s.Unreadable = true
		return s, Problem("No experiment", "The folder %s cannot be read: %s.", path, Plain(err))
	}
	if len(names) == 0 {
		s.Unreadable = true
		if path == "." {
			path = "this folder"
		}
		return s, Problem("No experiment", "No *.hcl file in %s. Create one with berth init.", path)
	}
	var diags hcl.Diagnostics
	for _, name := range names {
		shown := filepath.Join(s.Dir, name)
		src, err := s.read(shown, info.IsDir())
		if err != nil {
			s.Unreadable = true
			diags = append(diags, Problem("File cannot be read", "%s.", err)...)
			continue
		}
		s.Given[name] = src
		diags = append(diags, s.parse(shown, src)...)
	}
	return s, diags
}

// read reads a file. What was found in a folder must be a regular file: opening
// a pipe that lies there would wait forever. One that the user named may be
// whatever they like.
func (s *Source) read(path string, found bool) ([]byte, error) {
	if info, err := os.Stat(path); found && err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: remove it, or name the file of the experiment", path)
	}
	return ReadLimited(path)
}

// redefined is what HCL calls an attribute that is there twice. It is the only
// error of its parser after which the rest of the file still means something.
const redefined = "Attribute redefined"

// Mark is the byte order mark that some editors write at the beginning of a text.
const Mark = "\ufeff"

// parse parses one file. Its body is kept only when it is whole.
func (s *Source) parse(name string, src []byte) hcl.Diagnostics {
	src, marked := bytes.CutPrefix(src, []byte(Mark))
	s.Files[name] = &hcl.File{Bytes: src}
	if d := Unparsable(name, src); d != nil {
		s.Unreadable = true
		return hcl.Diagnostics{d}
	}
	f, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	if f != nil && f.Body != nil {
		s.Files[name] = f
	}
	broken := slices.ContainsFunc(diags, func(d *hcl.Diagnostic) bool { return d.Severity == hcl.DiagError && d.Summary != redefined })
	body, ok := f.Body.(*hclsyntax.Body)
	if broken || !ok {
		s.Unreadable = true
		return few(diags)
	}
	s.Bodies = append(s.Bodies, body)
	if marked {
		diags = append(diags, &hcl.Diagnostic{
			Severity: hcl.DiagWarning, Summary: "Byte order mark", Subject: &hcl.Range{Filename: name, Start: hcl.InitialPos, End: hcl.InitialPos},
			Detail: "The file begins with a byte order mark (BOM), which was left out. Save it as UTF-8 without BOM.",
		})
	}
	return diags
}

// LockFile is not part of the experiment in whose folder it is: it names the plugins
// that the experiment may use.
const LockFile = "berth.lock.hcl"

// hclFiles are the names of the *.hcl files of a folder, sorted, except LockFile.
func hclFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	var names []string
	for _, e := range entries {
		if n := e.Name(); strings.HasSuffix(n, ".hcl") && !strings.HasPrefix(n, ".") && !e.IsDir() && n != LockFile {
			names = append(names, n)
		}
	}
	if len(names) > maxFiles {
		return nil, fmt.Errorf("it has %d *.hcl files, at most %d are allowed", len(names), maxFiles)
	}
	slices.Sort(names)
	return names, nil
}

// ReadLimited reads a file that is not larger than it should be.
func ReadLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err == nil && len(src) > MaxFile {
		err = fmt.Errorf("%s is larger than %d MiB", path, MaxFile>>20)
	}
	return src, err
}

// Plain is an error without the operation and path that os puts before it.
func Plain(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// Unparsable says why a text is not even to be parsed, or is nil.
func Unparsable(name string, src []byte) *hcl.Diagnostic {
	line := 0
	for text := range bytes.Lines(src) {
		if line++; !utf8.Valid(text) { // the parser would say so of every such character, and print it
			return &hcl.Diagnostic{
				Severity: hcl.DiagError, Summary: "Not text",
				Detail: fmt.Sprintf("%s, line %d: bytes that are not UTF-8. Save it as UTF-8, or name another file.", name, line),
			}
		}
	}
	return tooDeep(name, src)
}

// few keeps the first problems of a file that cannot be parsed. In a file that is
// not HCL at all, every line has some.
func few(diags hcl.Diagnostics) hcl.Diagnostics {
	const most = 10
	if more := len(diags) - most; more > 0 {
		at := diags[most]
		diags = append(diags[:most:most], At(*at.Subject, at.Summary, "%d more problems like this are not shown. Is this file an experiment?", more))
	}
	return diags
}

// tooDeep finds what would make the parser or the evaluation recurse too deeply: brackets in brackets, and operators of one expression, each of which
// holds all before it.
func tooDeep(name string, src []byte) *hcl.Diagnostic {
	tokens, _ := hclsyntax.LexConfig(src, name, hcl.InitialPos) // the parser reports what is wrong
	ops := []int{0}                                             // in each bracket that is open
	for _, t := range tokens {
		last := len(ops) - 1
		switch t.Type {
		case hclsyntax.TokenOBrack, hclsyntax.TokenTemplateControl:
			ops[last]++
			ops = append(ops, 0)
		case hclsyntax.TokenOBrace, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp, hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc:
			ops = append(ops, 0)
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd,
			hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc:
			ops = ops[:max(1, last)]
		case hclsyntax.TokenBang, hclsyntax.TokenMinus, hclsyntax.TokenPlus, hclsyntax.TokenStar, hclsyntax.TokenSlash, hclsyntax.TokenPercent,
			hclsyntax.TokenAnd, hclsyntax.TokenOr, hclsyntax.TokenEqualOp, hclsyntax.TokenNotEqual, hclsyntax.TokenLessThan,
			hclsyntax.TokenGreaterThan, hclsyntax.TokenLessThanEq, hclsyntax.TokenGreaterThanEq, hclsyntax.TokenQuestion:
			ops[last]++
		case hclsyntax.TokenEqual, hclsyntax.TokenComma:
			ops[last] = 0
		default:
			continue
		}
		if len(ops) > maxNesting || ops[len(ops)-1] > maxOperators {
			return &hcl.Diagnostic{
				Severity: hcl.DiagError, Summary: "Nested too deeply", Subject: t.Range.Ptr(),
				Detail: fmt.Sprintf("More than %d brackets are open here, or an expression has more than %d operators. Split it with locals.", maxNesting, maxOperators),
			}
		}
	}
	return nil
}

// Problem is a diagnostic without a place.
func Problem(summary, format string, a ...any) hcl.Diagnostics {
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, a...)}}
}

// At is an error at a place.
func At(r hcl.Range, summary, format string, a ...any) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, a...), Subject: &r}
}
