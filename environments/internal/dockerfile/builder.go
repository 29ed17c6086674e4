package dockerfile

import (
	"bytes"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// Wants is what a Dockerfile wants of the program that builds it.
type Wants struct {
	// BuildKit says that Docker's classic builder refuses it.
	BuildKit bool
	// HereDocs says that it has here-documents, which older builders do not read,
	// and names no other reader (# syntax=).
	HereDocs bool
	// Images are those that its stages begin with or copy from.
	Images []string
}

// classic are the flags that Docker's classic builder knows, of the instructions
// that have flags which it does not know.
var classic = map[string][]string{"run": nil, "copy": {"from", "chown"}, "add": {"chown"}}

// Builder says what a Dockerfile wants. Whether it is one is for the builder to
// say: of a text that is none, nothing is known. args are values of its ARG
// instructions.
func Builder(data []byte, args map[string]string) (w Wants) {
	if len(data) > MaxBytes {
		return w
	}
	ast, err := parser.Parse(bytes.NewReader(data))
	if err != nil {
		return w
	}
	_, _, _, other := parser.DetectSyntax(data)
	for _, n := range ast.AST.Children {
		w.HereDocs = w.HereDocs || len(n.Heredocs) > 0 && !other
		flags, some := classic[strings.ToLower(n.Value)]
		w.BuildKit = w.BuildKit || len(n.Heredocs) > 0 || some && slices.ContainsFunc(n.Flags, func(f string) bool {
			name, _, _ := strings.Cut(strings.TrimPrefix(f, "--"), "=")
			return !slices.Contains(flags, name)
		})
	}
	stages, global, err := instructions.Parse(ast.AST, nil)
	if err != nil {
		return w
	}
	r := &reader{lex: shell.NewLex(ast.EscapeToken), stages: stages, given: args}
	if r.globals(global) != nil {
		return w
	}
	for i := range stages {
		w.image(r, i, stages[i].BaseName)
		for _, c := range stages[i].Commands {
			switch c := c.(type) {
			case *instructions.CopyCommand:
				w.image(r, i, c.From)
			case *instructions.RunCommand:
				for _, m := range instructions.GetMounts(c) {
					w.image(r, i, m.From)
				}
			}
		}
	}
	return w
}

// image adds what a stage names, unless that is nothing or another stage.
func (w *Wants) image(r *reader, stage int, name string) {
	name, _, err := r.lex.ProcessWord(name, vars(r.global))
	_, isStage := instructions.HasStage(r.stages[:stage], name)
	isNumber := name != "" && strings.Trim(name, "0123456789") == ""
	if err == nil && name != "" && name != "scratch" && !isStage && !isNumber && !slices.Contains(w.Images, name) {
		w.Images = append(w.Images, name)
	}
}
