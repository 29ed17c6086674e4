package config

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/berth-eval/berth/core/config/internal/eval"
)

// loader is the work of one Load.
type loader struct {
	ctx   context.Context //nolint:containedctx // a loader lives as long as one call of Load
	opts  Options
	src   *sources
	parts *parts
	exp   *Experiment
	env   *eval.Env
	vars  map[string]eval.Variable
	diags hcl.Diagnostics
	masks []hcl.Range
	// schemas are what plugins said, or why they did not.
	schemas map[string]schemaAnswer
	// broken says that the axes are not known, so that the only cell is one in
	// which every axis is unknown, and no cell may be used.
	broken bool
}

// Load reads an experiment from a file, or from all *.hcl files of a folder,
// with its cells, and reports every problem that it finds. It runs nothing, and
// reads nothing but these files, the files of variables, and what functions
// read. The experiment is nil when there is an error. It fails by diagnostics
// alone, also when ctx ends.
func Load(ctx context.Context, path string, o Options) (*Experiment, Diagnostics) {
	l := &loader{ctx: ctx, opts: o, schemas: map[string]schemaAnswer{}}
	l.src, l.diags = readSources(path)
	if !l.src.unreadable {
		l.load()
	}
	if err := ctx.Err(); err != nil {
		l.diags = append(l.diags, problem("Loading was stopped", "%s.", err)...)
	}
	ds := l.diagnostics()
	if ds.HasErrors() {
		return nil, ds
	}
	return l.exp, ds
}

func (l *loader) lookupEnv(name string) (string, bool) {
	if l.opts.LookupEnv == nil {
		return "", false
	}
	return l.opts.LookupEnv(name)
}

func (l *loader) load() {
	l.parts = l.src.sort()
	l.diags = append(l.diags, l.parts.diags...)
	dir := cmp.Or(l.opts.BaseDir, l.src.dir)
	reader, err := eval.NewReader(dir, l.opts.AllowRead)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		l.diags = append(l.diags, problem("Folder cannot be read", "%s.", err)...)
		return
	}
	variables := l.parts.byType["variable"]
	l.vars = l.variables(variables)
	names := eval.Names{Refs: map[string][]string{}, Variables: l.vars, Locals: l.locals()}
	for _, kind := range []string{"agent", "dataset", "environment", "model", "verifier"} {
		names.Refs[kind] = nil
		for _, b := range l.parts.byType[kind] {
			names.Refs[kind] = append(names.Refs[kind], b.Labels[0])
		}
	}
	l.exp = &Experiment{Dir: dir, src: l.src, blocks: l.parts.byType}
	if len(l.parts.byType["experiment"]) == 0 {
		l.env = eval.NewEnv(reader, l.opts.LookupEnv, names)
		return
	}
	block := l.parts.byType["experiment"][0]
	l.exp.Name = block.Labels[0]
	for _, a := range axes(block) {
		names.Axes = append(names.Axes, a.Name)
	}
	l.env = eval.NewEnv(reader, l.opts.LookupEnv, names)
	l.validate(l.ctx, variables)
	l.perRun(block)
	l.cells(block, l.matrix(block))
	l.exp.Variables = l.shownVariables()
	l.exp.Files = l.files()
}

// locals are the expressions of all locals blocks, by name.
func (l *loader) locals() map[string]hclsyntax.Expression {
	out := map[string]hclsyntax.Expression{}
	for _, b := range l.parts.byType["locals"] {
		for _, a := range inOrder(b.Body.Attributes) {
			if first := out[a.Name]; first != nil {
				l.diags = append(l.diags, at(a.NameRange, fmt.Sprintf("The local %q is there twice", a.Name), "The first is at %s. Rename or remove one of them.", place(first.Range())))
				continue
			}
			out[a.Name] = a.Expr
		}
	}
	return out
}

// files are what the experiment is made of.
func (l *loader) files() []File {
	out := l.src.given
	for name, content := range l.env.Files() {
		out = append(out, File{Name: name, Bytes: content, Read: true})
	}
	slices.SortFunc(out, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (l *loader) shownVariables() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for name, v := range l.vars {
		if v.Sensitive || !v.Value.IsWhollyKnown() {
			continue
		}
		if raw, err := (ctyjson.SimpleJSONValue{Value: v.Value}).MarshalJSON(); err == nil {
			out[name] = raw
		}
	}
	return out
}

// perRun reads what is the same for all cells.
func (l *loader) perRun(b *hclsyntax.Block) {
	outside := func(m eval.Mode) *eval.Scope {
		return l.env.Outside(m, "This is the same for all cells of the run.")
	}
	sc := &scopes{outside(eval.Shape), outside(eval.Label), outside(eval.Real)}
	var fs []field
	for _, f := range blockOf("experiment").fields {
		if f.perRun {
			fs = append(fs, f)
		}
	}
	var eb experimentBlock
	if r := l.decode(sc, b, fs, &eb); r != nil {
		r.report(checkRun(&eb))
		l.keep(r)
		l.exp.Description, l.exp.Repeat = eb.Description, eb.Repeat
		l.exp.Limits, l.exp.Retry = RunLimits(eb.Limits), eb.Retry.public()
	}
	l.exp.Executor = Executor{Kind: "local"}
	for _, b := range l.parts.byType["executor"] {
		var xb executorBlock
		if r := l.decode(sc, b, blockOf("executor").fields, &xb); r != nil {
			r.report(checkExecutor(&xb))
			l.keep(r)
			l.exp.Executor = xb.public(b.Labels[0])
		}
	}
}

// decode reads the fields of a block into the struct that into points to; what
// is wrong or unknown is left out of it, and then the reading is broken. Nil:
// nothing of it can be used.
func (l *loader) decode(sc *scopes, b *hclsyntax.Block, fs []field, into any) *reading {
	r, raw := read(l.ctx, sc, b, fs)
	if !r.into(raw, into) {
		l.keep(r)
		return nil
	}
	return r
}

func (l *loader) keep(r *reading) {
	l.diags = append(l.diags, r.diags...)
	l.masks = append(l.masks, r.masks...)
}

// diagnostics puts everything that was found in order, each problem once.
func (l *loader) diagnostics() Diagnostics {
	type key struct {
		summary, detail, file string
		from, to              int
	}
	seen := map[key]bool{}
	var diags hcl.Diagnostics
	for _, d := range l.diags {
		k := key{summary: d.Summary, detail: d.Detail}
		if s := d.Subject; s != nil {
			k.file, k.from, k.to = s.Filename, s.Start.Byte, s.End.Byte
		}
		if !seen[k] {
			seen[k] = true
			diags = append(diags, d)
		}
	}
	slices.SortStableFunc(diags, func(a, b *hcl.Diagnostic) int {
		if a.Subject == nil || b.Subject == nil {
			return cmp.Compare(btoi(a.Subject != nil), btoi(b.Subject != nil))
		}
		return cmp.Or(cmp.Compare(a.Subject.Filename, b.Subject.Filename), cmp.Compare(a.Subject.Start.Byte, b.Subject.Start.Byte))
	})
	return fromHCL(diags, masked(l.src.files, l.masks))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// masked are the files with some ranges made unreadable.
func masked(files map[string]*hcl.File, masks []hcl.Range) map[string]*hcl.File {
	out := maps.Clone(files)
	for _, r := range masks {
		f := out[r.Filename]
		if f == nil {
			continue
		}
		src := bytes.Clone(f.Bytes)
		for i := r.Start.Byte; i < r.End.Byte && i < len(src); i++ {
			if src[i] != '\n' {
				src[i] = '*'
			}
		}
		out[r.Filename] = &hcl.File{Body: f.Body, Bytes: src, Nav: f.Nav}
	}
	return out
}

// known says whether a value has nothing unknown in it and no secret.
func known(v cty.Value) bool { return v.IsWhollyKnown() && len(eval.Secrets(v)) == 0 }
