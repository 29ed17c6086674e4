package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/eval"
	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/matrix"
	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/source"
	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/plugins"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/task"
)

type schemaAnswer struct {
	fields []source.Field
	err    error
}

// cells resolves every point. Problems of a cell are reported once, with the
// first cell that has them when not all do.
func (l *loader) cells(experiment *hclsyntax.Block, points []matrix.Point) {
	if l.broken {
		points = []matrix.Point{nil} // everything else is still checked
	}
	found := &findings{total: len(points)}
	used := map[string]bool{}
	taken := map[string]bool{}
	for i, p := range points {
		if l.ctx.Err() != nil {
			return
		}
		c := l.builder(p)
		c.build(experiment)
		maps.Copy(used, c.used)
		found.add(c.diags, c.cell.Key)
		c.cell.Slug = slug(c.slugText(p), c.cell.Key, taken)
		l.exp.Cells = append(l.exp.Cells, c.cell)
		if i == len(points)-1 {
			l.unused(points[0], used)
		}
	}
	l.diags = append(l.diags, found.list()...)
	l.same(experiment)
}

// builder resolves one cell.
type builder struct {
	l     *loader
	cell  *experiment.Cell
	scope *eval.Scope
	diags hcl.Diagnostics
	done  map[string]any  // by type and label of the block; nil values are broken
	used  map[string]bool // the same
	chain []string        // labels of the models that are being resolved, each a fallback of the one before
}

func (l *loader) builder(p matrix.Point) *builder {
	vals := map[string]cty.Value{}
	for i, a := range l.axes {
		vals[a.Name] = cty.DynamicVal
		if p != nil {
			vals[a.Name] = p[i].Val
		}
	}
	c := &builder{l: l, done: map[string]any{}, used: map[string]bool{}, cell: &experiment.Cell{}}
	c.cell.Choices = map[string]string{}
	c.scope = l.env.Scope(vals)
	if p != nil {
		c.cell.Key = key(l.axes, p)
		for i, v := range p {
			c.cell.Choices[l.axes[i].Name] = v.Text
		}
	}
	return c
}

func (c *builder) slugText(p matrix.Point) string {
	if len(p) == 0 {
		return c.cell.Agent.Label
	}
	texts := make([]string, len(p))
	for i, v := range p {
		texts[i] = v.Text
	}
	return strings.Join(texts, "-")
}

// unused resolves the blocks that no cell uses, so that all problems are found in one
// pass.
func (l *loader) unused(p matrix.Point, used map[string]bool) {
	c := l.builder(p)
	for _, kind := range []string{"dataset", "environment", "agent", "model"} {
		for _, b := range l.parts.byType[kind] {
			if used[kind+"."+b.Labels[0]] {
				continue
			}
			switch kind {
			case "dataset":
				c.dataset(b.Labels[0])
			case "environment":
				c.environment(b.Labels[0])
			case "agent":
				c.agent(b.Labels[0])
			case "model":
				c.model(b.Labels[0])
			}
		}
	}
	l.diags = append(l.diags, c.diags...)
}

// same leaves out cells that equal an earlier one, because their trials would be
// the same.
func (l *loader) same(block *hclsyntax.Block) {
	if l.broken || l.diags.HasErrors() {
		return
	}
	first := map[string]*experiment.Cell{}
	var kept []*experiment.Cell
	var out []string
	for _, c := range l.exp.Cells {
		var b strings.Builder
		for i := range c.Datasets {
			fmt.Fprintf(&b, "%q: %s\n", c.Datasets[i].Label, c.Identity(&c.Datasets[i]))
		}
		id := b.String()
		if other := first[id]; other != nil {
			out = append(out, fmt.Sprintf("%s is the same as %s", c.Key, other.Key))
			continue
		}
		first[id] = c
		c.Index = len(kept)
		kept = append(kept, c)
	}
	l.exp.Cells = kept
	if len(out) == 0 {
		return
	}
	rest := ""
	if n := len(out) - 3; n > 0 {
		out, rest = out[:3], fmt.Sprintf(" (and %d more)", n)
	}
	d := source.At(matrixOf(block).DefRange(), "Equal cells are left out",
		"%s%s: nothing reads the axis in which they differ. Use it as matrix.<axis>, or exclude those cells. To repeat trials, set repeat in the experiment.", strings.Join(out, "; "), rest)
	d.Severity = hcl.DiagWarning
	l.diags = append(l.diags, d)
}

// build resolves the cell.
func (c *builder) build(experiment *hclsyntax.Block) {
	var refs, others []source.Field
	for _, f := range blockOf("experiment").fields {
		switch {
		case f.PerRun:
		case f.Ref != "":
			refs = append(refs, f)
		default:
			others = append(others, f)
		}
	}
	// Apart, so that a fault in one does not hide what is wrong elsewhere.
	var eb, rest experimentBlock
	r, _ := decode(c.l.ctx, c.scope, experiment, refs, &eb)
	c.keep(r)
	r, ok := decode(c.l.ctx, c.scope, experiment, others, &rest)
	if ok {
		rest.Datasets = eb.Datasets
		r.Report(checkCell(&rest))
		eb.Verify, eb.PerTrial, eb.PerCell = rest.Verify, rest.PerTrial, rest.PerCell
	}
	c.keep(r)
	c.choose(experiment, &eb)
	c.cell.Verify = task.Mode(eb.Verify)
	c.cell.Limits, c.cell.PerCell = eb.PerTrial, eb.PerCell
	if eb.Model != "" {
		c.cell.Model = c.model(eb.Model)
	}
	if a := c.agent(eb.Agent); a != nil {
		c.cell.Agent = c.withModels(*a, c.cell.Model)
	}
	for _, d := range eb.Datasets {
		if ds := c.dataset(d); ds != nil {
			set := *ds
			set.Verify = c.cell.Verify
			c.cell.Datasets = append(c.cell.Datasets, set)
		}
	}
	c.place(experiment, &eb)
	for _, b := range c.l.parts.byType["verifier"] {
		c.verifier(b)
	}
	for _, b := range c.l.parts.byType["user"] {
		c.cell.User = read(c, b, c.user)
	}
}

// choose lets the axes choose instead of the experiment.
func (c *builder) choose(experiment *hclsyntax.Block, eb *experimentBlock) {
	for _, a := range c.l.axes {
		if !slices.Contains(matrix.PartAxes, a.Name) {
			continue
		}
		attr := experiment.Body.Attributes[a.Name]
		if a.Name == "dataset" {
			attr = experiment.Body.Attributes["datasets"]
		}
		if attr != nil {
			c.diags = append(c.diags, source.At(attr.SrcRange, "Chosen twice", "The axis %q of the matrix chooses it as well. Keep one of them.", a.Name))
		}
	}
	for axis, into := range map[string]*string{"agent": &eb.Agent, "model": &eb.Model, "environment": &eb.Environment} {
		*into = cmp.Or(c.cell.Choices[axis], *into)
	}
	if label := c.cell.Choices["dataset"]; label != "" {
		eb.Datasets = []string{label}
	}
	if c.l.broken {
		return
	}
	if eb.Agent == "" {
		c.missing(experiment, "agent", "agent", "agent = agent.name")
	}
	if len(eb.Datasets) == 0 {
		c.missing(experiment, "datasets", "dataset", "datasets = [dataset.name]")
	}
}

// missing reports that something is not chosen. If it is there and wrong, that has
// been reported already.
func (c *builder) missing(experiment *hclsyntax.Block, attr, what, write string) {
	if a := experiment.Body.Attributes[attr]; a != nil && !isEmptyList(a.Expr) {
		return
	}
	for _, d := range c.l.parts.Diags { // perhaps it is there under a wrong name
		if d.Subject != nil && d.Subject.Filename == experiment.Body.SrcRange.Filename && experiment.Body.SrcRange.Overlaps(*d.Subject) {
			return
		}
	}
	c.diags = append(c.diags, source.At(experiment.DefRange(), fmt.Sprintf("No %s is chosen", what), "Write %s in the experiment, or an axis %s in its matrix.", write, what))
}

func isEmptyList(e hclsyntax.Expression) bool {
	t, ok := e.(*hclsyntax.TupleConsExpr)
	return ok && len(t.Exprs) == 0
}

// place resolves the environment of the cell.
func (c *builder) place(experiment *hclsyntax.Block, eb *experimentBlock) {
	if eb.Environment == "" {
		// With blocks, one of them is meant: the default would ignore all of them.
		if (c.l.opts.DefaultEnvironment == "" || len(c.l.parts.byType["environment"]) > 0) && !c.l.broken {
			c.missing(experiment, "environment", "environment", "environment = environment.name")
		}
		c.cell.Environment = cell.Environment{Label: c.l.opts.DefaultEnvironment, Plugin: c.l.opts.DefaultEnvironment}
		return
	}
	if e := c.environment(eb.Environment); e != nil {
		c.cell.Environment = *e
	}
}

func (c *builder) keep(r *source.Reading) {
	c.diags = append(c.diags, r.Diags...)
	c.l.unexplained = append(c.l.unexplained, r.Unexplained...)
	c.l.masks = append(c.l.masks, r.Masks...)
}

// read decodes a block and resolves it; nil: it cannot be used.
func read[B, T any](c *builder, block *hclsyntax.Block, resolve func(*source.Reading, *B) *T) *T {
	var written B
	r, ok := decode(c.l.ctx, c.scope, block, blockOf(block.Type).fields, &written)
	defer func() { c.keep(r) }()
	if !ok {
		return nil
	}
	if v := resolve(r, &written); !r.Broken {
		return v
	}
	return nil
}

// once reads a block the first time that the cell needs it.
func once[B, T any](c *builder, kind, label string, resolve func(*source.Reading, *B) *T) *T {
	id := kind + "." + label
	c.used[id] = true
	if v, ok := c.done[id]; ok {
		known, _ := v.(*T)
		return known
	}
	c.done[id] = (*T)(nil)
	b := c.l.exp.block(kind, label)
	if b == nil {
		return nil // the reference has been reported
	}
	v := read(c, b, resolve)
	c.done[id] = v
	return v
}

// config resolves a body that a plugin describes. at is the attribute that
// names the plugin.
func (c *builder) config(r *source.Reading, name string, kind plugins.Kind, plugin, at string) cell.Values {
	inner := r.Bodies[name]
	if plugin == "" && r.IsUnknown(pluginconfig.Path(at)) {
		return cell.Values{}
	}
	answer := c.l.schema(kind, plugin)
	if answer.err != nil {
		r.Report([]pluginconfig.Problem{{Path: pluginconfig.Path(at), Summary: fmt.Sprintf("Plugin %q cannot be used", plugin), Detail: answer.err.Error()}})
		return cell.Values{}
	}
	if inner == nil {
		// What the schema requires must be there although the block is not.
		if ps := source.SchemaOf(answer.fields).Problems(nil); len(ps) > 0 && c.l.opts.Schemas != nil {
			r.Report([]pluginconfig.Problem{{Path: "", Summary: fmt.Sprintf("The %s block is missing", name), Detail: fmt.Sprintf("%q needs it: %s.", plugin, ps[0].Summary)}})
		}
		return cell.Values{}
	}
	fs := answer.fields
	if c.l.opts.Schemas == nil {
		fs = source.AnyOf(inner.Body)
	} else {
		p := &source.Checker{}
		p.Body(inner.Body, fs)
		r.Diags = append(r.Diags, p.Diags...)
	}
	cr, raw := source.Read(c.l.ctx, c.scope, inner, fs)
	r.Diags = append(r.Diags, cr.Diags...)
	r.Masks = append(r.Masks, cr.Masks...)
	r.Unexplained = append(r.Unexplained, cr.Unexplained...)
	if cr.Broken {
		return cell.Values{}
	}
	holes := map[pluginconfig.Path]*cell.Secret{}
	for path, h := range cr.Holes {
		holes[path] = c.secret(h)
	}
	return cell.NewValues(raw, holes)
}

// schema asks for the schema of a plugin once.
func (l *loader) schema(kind plugins.Kind, plugin string) schemaAnswer {
	id := string(kind) + " " + plugin
	a, ok := l.schemas[id]
	if ok || l.opts.Schemas == nil {
		return a
	}
	s, err := l.opts.Schemas(kind, plugin)
	if err == nil {
		err = s.Check()
	}
	a = schemaAnswer{source.Of(s.Fields), err}
	l.schemas[id] = a
	return a
}

// findings are the problems of all cells.
type findings struct {
	total int
	order []*finding
	by    map[string]*finding
}

type finding struct {
	diag  *hcl.Diagnostic
	cells []string
}

func (f *findings) add(diags hcl.Diagnostics, cell string) {
	if f.by == nil {
		f.by = map[string]*finding{}
	}
	seen := map[string]bool{}
	for _, d := range diags {
		id := identityOfProblem(d)
		if seen[id] {
			continue
		}
		seen[id] = true
		if f.by[id] == nil {
			f.by[id] = &finding{diag: d}
			f.order = append(f.order, f.by[id])
		}
		f.by[id].cells = append(f.by[id].cells, cell)
	}
}

func (f *findings) list() hcl.Diagnostics {
	var out hcl.Diagnostics
	for _, x := range f.order {
		if n := len(x.cells); n < f.total {
			more := ""
			if n > 1 {
				more = fmt.Sprintf(" and %d more", n-1)
			}
			d := *x.diag
			d.Detail = strings.TrimSpace(fmt.Sprintf("%s\n\nIn cell %s%s.", d.Detail, x.cells[0], more))
			x.diag = &d
		}
		out = append(out, x.diag)
	}
	return out
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func compact(raw json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if len(raw) == 0 || json.Compact(&b, raw) != nil {
		return nil
	}
	return b.Bytes()
}

// key names a cell: "agent=a,effort=low".
func key(axes []matrix.Axis, p matrix.Point) string {
	parts := make([]string, len(p))
	for i, v := range p {
		text := v.Text
		if text == "" || strings.ContainsAny(text, ",=\"") || strconv.Quote(text) != `"`+text+`"` {
			text = strconv.Quote(text)
		}
		parts[i] = axes[i].Name + "=" + text
	}
	return strings.Join(parts, ",")
}

const maxSlug = 60

// slug makes a name for files of text, unique among those that are taken.
func slug(text, key string, taken map[string]bool) string {
	s := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, text), ".-_")
	if s == "" || len(s) > maxSlug || taken[s] {
		sum := sha256.Sum256([]byte(key + "\x00" + text))
		s = strings.TrimLeft(s[:min(len(s), maxSlug-13)]+"-"+hex.EncodeToString(sum[:6]), "-")
	}
	taken[s] = true
	return s
}
