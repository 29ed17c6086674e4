package source

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	pluginconfig "github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/suggest"
)

// Checker finds names in bodies that are unknown, in the wrong place, or there
// twice, without evaluating anything.
type Checker struct {
	Diags hcl.Diagnostics
}

// Add reports an error.
func (c *Checker) Add(r hcl.Range, summary, format string, a ...any) {
	c.Diags = append(c.Diags, At(r, summary, format, a...))
}

// Body checks a body, and the blocks in it, against fields.
func (c *Checker) Body(body *hclsyntax.Body, fs []Field) { c.body(body, fs, false) }

// body checks a body; with axes any further attribute may stand there.
func (c *Checker) body(body *hclsyntax.Body, fs []Field, axes bool) {
	for _, a := range InOrder(body.Attributes) {
		i := slices.IndexFunc(fs, func(f Field) bool { return f.Name == a.Name })
		switch {
		case i < 0 && axes:
		case i < 0:
			c.Add(a.NameRange, "Unknown name", "There is no %q here.%s", a.Name, hereIs(a.Name, fs))
		case !fs[i].IsAttribute():
			c.Add(a.NameRange, "Not an attribute", "%q is a block: write %s { … }, without \"=\".", a.Name, a.Name)
		}
	}
	c.nested(body, fs)
}

// hereIs suggests what to write instead of an unknown name.
func hereIs(name string, fs []Field) string {
	if len(fs) == 0 {
		return " This block takes no settings."
	}
	return suggest.Hint(name, namesOf(fs))
}

func namesOf(fs []Field) []string {
	names := make([]string, len(fs))
	for i, f := range fs {
		names[i] = f.Name
	}
	return names
}

// nested checks the blocks of a body.
func (c *Checker) nested(body *hclsyntax.Body, fs []Field) {
	first := map[string]*hclsyntax.Block{}
	for _, b := range body.Blocks {
		i := slices.IndexFunc(fs, func(f Field) bool { return f.Name == b.Type })
		if i < 0 || !fs[i].IsBlock() {
			c.unknownBlock(b, fs, i >= 0)
			continue
		}
		f := fs[i]
		want := 0
		if f.Type == pluginconfig.BlockMap {
			want = 1
		}
		if len(b.Labels) < want {
			c.Add(b.DefRange(), "Label is missing", "A block %q has a name: %s \"name\" { … }.", b.Type, b.Type)
		} else if len(b.Labels) > want {
			c.Add(b.LabelRanges[want], "Too many labels", "A block %q has %d, this is %q.", b.Type, want, b.Labels[want])
		}
		if !f.Many && f.Type != pluginconfig.BlockList && f.Type != pluginconfig.BlockMap {
			c.twice(first, b, body.Attributes[f.Name])
		}
		switch f.Body {
		case BodyFree:
			c.Free(b.Body, b.Type)
		case BodyConfig: // known when the plugin is
		case BodyAxes:
			c.body(b.Body, f.Nested, true)
		default:
			c.Body(b.Body, f.Nested)
		}
	}
}

func (c *Checker) unknownBlock(b *hclsyntax.Block, fs []Field, attribute bool) {
	if attribute {
		c.Add(b.TypeRange, "Not a block", "%q is an attribute: write %s = …", b.Type, b.Type)
		return
	}
	c.Add(b.TypeRange, "Unknown name", "There is no block %q here.%s", b.Type, hereIs(b.Type, fs))
}

// twice reports a block that is there already, as a block or as an attribute.
func (c *Checker) twice(first map[string]*hclsyntax.Block, b *hclsyntax.Block, attr *hclsyntax.Attribute) {
	if attr != nil {
		c.Add(b.DefRange(), fmt.Sprintf("%q is defined twice", b.Type), "It is also an attribute at %s. Keep one of them.", Place(attr.SrcRange))
	}
	if f := first[b.Type]; f != nil {
		c.Add(b.DefRange(), fmt.Sprintf("More than one %s block", b.Type), "The first is at %s. Keep one of them.", Place(f.DefRange()))
		return
	}
	first[b.Type] = b
}

// Free checks a body that may hold any attributes, and no block.
func (c *Checker) Free(body *hclsyntax.Body, name string) {
	for _, b := range body.Blocks {
		c.Add(b.DefRange(), "Unexpected block", "A block %q holds attributes only: %s = …", name, b.Type)
	}
}

// InOrder are the attributes of a body in the order of the file.
func InOrder(as hclsyntax.Attributes) []*hclsyntax.Attribute {
	out := slices.Collect(maps.Values(as))
	slices.SortFunc(out, func(a, b *hclsyntax.Attribute) int { return a.SrcRange.Start.Byte - b.SrcRange.Start.Byte })
	return out
}

// Place is where a range begins, for messages.
func Place(r hcl.Range) string { return fmt.Sprintf("%s line %d", r.Filename, r.Start.Line) }
