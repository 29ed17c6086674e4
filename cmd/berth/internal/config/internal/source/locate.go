package source

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	pluginconfig "github.com/berth-eval/berth/plugins/config"
)

// Locate makes a diagnostic of a problem with a block, at the place in the file
// that its path leads to: the attribute, the element of a list, the entry of a
// map, the n-th block; or else the header of the nearest block.
func Locate(b *hclsyntax.Block, p pluginconfig.Problem) *hcl.Diagnostic {
	steps, _ := p.Path.Steps() // what can be read of it leads near
	subject := locateIn(b, steps)
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: p.Summary, Detail: p.Detail, Subject: &subject}
}

func locateIn(b *hclsyntax.Block, steps []pluginconfig.Step) hcl.Range {
	if len(steps) == 0 || steps[0].Kind != pluginconfig.StepName {
		return b.DefRange()
	}
	name, rest := steps[0].Name, steps[1:]
	if a := b.Body.Attributes[name]; a != nil {
		return locateExpr(a.Expr, rest)
	}
	nth, label := 0, ""
	if len(rest) > 0 && rest[0].Kind != pluginconfig.StepName {
		nth, label, rest = rest[0].Index, rest[0].Name, rest[1:]
	}
	for _, inner := range b.Body.Blocks {
		switch {
		case inner.Type != name:
		case label != "" && (len(inner.Labels) == 0 || inner.Labels[0] != label):
		case nth > 0:
			nth--
		default:
			return locateIn(inner, rest)
		}
	}
	return b.DefRange()
}

func locateExpr(e hclsyntax.Expression, steps []pluginconfig.Step) hcl.Range {
	if len(steps) == 0 {
		return e.Range()
	}
	switch e := e.(type) {
	case *hclsyntax.TupleConsExpr:
		if i := steps[0].Index; steps[0].Kind == pluginconfig.StepIndex && i < len(e.Exprs) {
			return locateExpr(e.Exprs[i], steps[1:])
		}
	case *hclsyntax.ObjectConsExpr:
		for _, item := range e.Items {
			key, diags := item.KeyExpr.Value(nil)
			if diags.HasErrors() || !key.IsKnown() || key.IsNull() || key.Type() != cty.String {
				continue
			}
			if steps[0].Kind != pluginconfig.StepIndex && key.AsString() == steps[0].Name {
				return locateExpr(item.ValueExpr, steps[1:])
			}
		}
	}
	return e.Range()
}
