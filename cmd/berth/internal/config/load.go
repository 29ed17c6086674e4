package config

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/eval"
	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/matrix"
	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/source"
	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/variable"
	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/suggest"
)

// loader does the work of one Load.
type loader struct {
	ctx   context.Context //nolint:containedctx // a loader lives as long as one call of Load
	opts  Options
	src   *source.Source
	parts *parts
	exp   *Experiment
	env   *eval.Env
	vars  map[string]eval.Variable
	diags hcl.Diagnostics
	masks []hcl.Range
	// unexplained are expressions that are unknown because something else is
	// wrong.
	unexplained []hcl.Range
	// schemas are what plugins answered, or why they did not.
	schemas map[string]schemaAnswer
	models  map[string]*cell.Model // by their own JSON
	axes    []matrix.Axis
	// broken says that the axes are not known, so that the only cell is one in
	// which every axis is unknown, and no cell may be used.
	broken bool
}

// LockFile is a file in the folder of an experiment that is not part of it. It names
// the plugins that the experiment may use, and Load does not read it.
const LockFile = source.LockFile

// Load reads an experiment from a file, or from all *.hcl files of a folder,
// with its cells, and reports every problem that it finds. It runs nothing, and
// reads nothing but these files, the files of variables, and what functions
// read. The experiment is nil when there is an error. Every failure is a
// diagnostic, also that ctx has ended.
func Load(ctx context.Context, path string, o Options) (*Experiment, Diagnostics) {
	l := &loader{ctx: ctx, opts: o, schemas: map[string]schemaAnswer{}, models: map[string]*cell.Model{}}
	l.src, l.diags = source.Open(path)
	if l.src.Unreadable { // what stands in the files that can be read is still checked
		l.diags = append(l.diags, sortBlocks(l.src).Diags...)
	} else {
		l.load()
	}
	if !l.diags.HasErrors() {
		// No reason was found: never continue without a value.
		for _, r := range l.unexplained {
			l.diags = append(l.diags, source.At(r, "Value cannot be determined", "It depends on a secret in a way that is not supported. Write the text with the secret directly."))
		}
	}
	if err := ctx.Err(); err != nil {
		l.diags = append(l.diags, source.Problem("Loading was stopped", "%s.", err)...)
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
	l.parts = sortBlocks(l.src)
	l.diags = append(l.diags, l.parts.Diags...)
	dir := cmp.Or(l.opts.BaseDir, l.src.Dir)
	reader, err := eval.NewReader(dir, l.opts.AllowRead, l.opts.Kept)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		l.diags = append(l.diags, source.Problem("Folder cannot be read", "%s.", err)...)
		return
	}
	variables := l.parts.byType["variable"]
	var diags hcl.Diagnostics
	l.vars, l.masks, diags = variable.Values(l.ctx, l.src, variables, variable.Given{Vars: l.opts.Vars, Files: l.opts.VarFiles, Values: l.opts.Values, LookupEnv: l.lookupEnv})
	l.diags = append(l.diags, diags...)
	names := eval.Names{Refs: map[string][]string{}, Variables: l.vars, Locals: l.locals()}
	for _, kind := range []string{"agent", "dataset", "environment", "model", "verifier"} {
		names.Refs[kind] = nil
		for _, b := range l.parts.byType[kind] {
			names.Refs[kind] = append(names.Refs[kind], b.Labels[0])
		}
	}
	l.exp = &Experiment{Dir: dir, src: l.src, blocks: l.parts.byType, places: map[*cell.Secret]hcl.Range{}}
	if len(l.parts.byType["experiment"]) == 0 {
		l.env = eval.NewEnv(reader, l.opts.LookupEnv, names)
		return
	}
	block := l.parts.byType["experiment"][0]
	l.exp.Name = block.Labels[0]
	names.Axes = matrix.Names(matrixOf(block))
	l.env = eval.NewEnv(reader, l.opts.LookupEnv, names)
	l.diags = append(l.diags, variable.Validate(l.ctx, l.env, l.vars, variables)...)
	l.perRun(block)
	l.cells(block, l.points(block))
	l.exp.Variables = l.shownVariables()
	l.exp.Files = l.files()
}

// locals are the expressions of all locals blocks, by name.
func (l *loader) locals() map[string]hclsyntax.Expression {
	out := map[string]hclsyntax.Expression{}
	for _, b := range l.parts.byType["locals"] {
		for _, a := range source.InOrder(b.Body.Attributes) {
			if first := out[a.Name]; first != nil {
				l.diags = append(l.diags, source.At(a.NameRange, fmt.Sprintf("Local %q is defined twice", a.Name), "The first is at %s. Rename or remove one of them.", source.Place(first.Range())))
				continue
			}
			out[a.Name] = a.Expr
		}
	}
	return out
}

// files are what the experiment is made of.
func (l *loader) files() []File {
	var out []File
	for name, content := range l.src.Given {
		out = append(out, File{Name: name, Bytes: content})
	}
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

// matrixOf is the matrix block of an experiment, or nil.
func matrixOf(experiment *hclsyntax.Block) *hclsyntax.Block {
	for _, b := range experiment.Body.Blocks {
		if b.Type == "matrix" {
			return b
		}
	}
	return nil
}

// points expands the matrix.
func (l *loader) points(experiment *hclsyntax.Block) []matrix.Point {
	axes, points, diags := matrix.Expand(l.ctx, l.env.Outside("This is what the matrix is made of."), matrixOf(experiment))
	l.diags = append(l.diags, diags...)
	l.broken = points == nil
	l.axes = axes
	return points
}

// perRun reads what is the same for all cells.
func (l *loader) perRun(b *hclsyntax.Block) {
	sc := l.env.Outside("This is the same for all cells of the run.")
	var fs []source.Field
	for _, f := range blockOf("experiment").fields {
		if f.PerRun {
			fs = append(fs, f)
		}
	}
	var eb experimentBlock
	r, ok := decode(l.ctx, sc, b, fs, &eb)
	if ok {
		r.Report(l.unknownLabels(&eb.Limits))
		l.exp.Description, l.exp.Repeat = eb.Description, eb.Repeat
		l.exp.Limits, l.exp.Report = eb.Limits, eb.Report
		if eb.Retry != nil {
			l.exp.Retry = *eb.Retry
		}
		l.exp.Keep = experiment.Keep{Which: eb.Keep, MiB: eb.KeepMiB}
	}
	l.keep(r)
	l.exp.Executor = experiment.Executor{Kind: "local"}
	for _, b := range l.parts.byType["executor"] {
		x := experiment.Executor{Kind: b.Labels[0]}
		r, ok := decode(l.ctx, sc, b, blockOf("executor").fields, &x)
		if ok {
			r.Report(checkExecutor(&x))
			l.exp.Executor = x
		}
		l.keep(r)
	}
}

// unknownLabels reports limits for blocks that the experiment does not have.
func (l *loader) unknownLabels(limits *experiment.RunLimits) []pluginconfig.Problem {
	r := &rules{}
	for kind, of := range limits.Blocks() {
		var labels []string
		for _, b := range l.parts.byType[kind] {
			labels = append(labels, b.Labels[0])
		}
		for label := range of {
			if !slices.Contains(labels, label) {
				r.add(pluginconfig.Path("limits."+kind).Key(label), "Unknown label", "There is no %s %q.%s", kind, label, suggest.Hint(label, labels))
			}
		}
	}
	return r.ps
}

// decode reads the fields of a block into the struct that into points to; what
// is wrong or unknown is left out of it, and then the reading is broken. Not ok:
// nothing of it can be used.
func decode(ctx context.Context, sc *eval.Scope, b *hclsyntax.Block, fs []source.Field, into any) (r *source.Reading, ok bool) {
	r, raw := source.Read(ctx, sc, b, fs)
	if !r.Into(raw, into) {
		return r, false
	}
	wrong := &rules{}
	wrong.numbers("", reflect.ValueOf(into).Elem())
	r.Report(wrong.ps)
	return r, true
}

func (l *loader) keep(r *source.Reading) {
	l.diags = append(l.diags, r.Diags...)
	l.unexplained = append(l.unexplained, r.Unexplained...)
	l.masks = append(l.masks, r.Masks...)
}

// diagnostics puts everything that was found in order, each problem once.
func (l *loader) diagnostics() Diagnostics {
	seen := map[string]bool{}
	diags := slices.DeleteFunc(slices.Clone(l.diags), func(d *hcl.Diagnostic) bool {
		id := identityOfProblem(d)
		defer func() { seen[id] = true }()
		return seen[id]
	})
	place := func(d *hcl.Diagnostic) (file string, at int) {
		if d.Subject == nil {
			return "", -1
		}
		return d.Subject.Filename, d.Subject.Start.Byte
	}
	slices.SortStableFunc(diags, func(a, b *hcl.Diagnostic) int {
		af, ai := place(a)
		bf, bi := place(b)
		return cmp.Or(cmp.Compare(af, bf), cmp.Compare(ai, bi), cmp.Compare(a.Detail, b.Detail))
	})
	return fromHCL(diags, masked(l.src.Files, l.masks))
}

// identityOfProblem is equal for diagnostics that say the same of the same place.
func identityOfProblem(d *hcl.Diagnostic) string {
	place := ""
	if d.Subject != nil {
		place = d.Subject.String()
	}
	return d.Summary + "\x00" + d.Detail + "\x00" + place
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
