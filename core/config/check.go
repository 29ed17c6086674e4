package config

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/berth-eval/berth/core/config/internal/eval"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
)

// parts are the blocks of an experiment by type and label, over all its files.
type parts struct {
	byType map[string][]*hclsyntax.Block // in the order of the files
	diags  hcl.Diagnostics
}

// sort takes the bodies apart and checks everything that needs no evaluation:
// types, labels, names that are unknown or twice.
func (s *sources) sort() *parts {
	p := &parts{byType: map[string][]*hclsyntax.Block{}}
	names := make([]string, len(blocks))
	for i, b := range blocks {
		names[i] = b.name
	}
	for _, body := range s.bodies {
		for _, a := range inOrder(body.Attributes) {
			p.add(a.SrcRange, "Unexpected attribute", "%q stands outside of any block. Only blocks may stand here: %s.", a.Name, list(names))
		}
		for _, b := range body.Blocks {
			if !slices.Contains(names, b.Type) {
				p.add(b.TypeRange, "Unknown block type", "There is no block %q.%s", b.Type, eval.Suggest(b.Type, names))
				continue
			}
			if p.labels(b) {
				p.byType[b.Type] = append(p.byType[b.Type], b)
			}
			p.body(b.Body, blockOf(b.Type).fields, b.Type)
		}
	}
	for _, one := range []string{"experiment", "user", "executor"} {
		if bs := p.byType[one]; len(bs) > 1 {
			p.add(bs[1].DefRange(), "More than one "+one+" block", "The first is at %s. Keep one of them.", place(bs[0].DefRange()))
		}
	}
	if len(p.byType["experiment"]) == 0 && !p.diags.HasErrors() {
		p.diags = append(p.diags, problem("No experiment block", "One of the files needs a block such as: experiment \"name\" { datasets = [dataset.x], agent = agent.y }.")...)
	}
	return p
}

func (p *parts) add(r hcl.Range, summary, format string, a ...any) {
	p.diags = append(p.diags, at(r, summary, format, a...))
}

// labels checks the labels of a top-level block.
func (p *parts) labels(b *hclsyntax.Block) bool {
	want := blockOf(b.Type).labels
	switch {
	case len(b.Labels) < len(want):
		p.add(b.DefRange(), "Label is missing", "A block %q has a %s: %s \"name\" { … }.", b.Type, want[0], b.Type)
		return false
	case len(b.Labels) > len(want):
		p.add(b.LabelRanges[len(want)], "Too many labels", "A block %q has %d, this is %q.", b.Type, len(want), b.Labels[len(want)])
		return false
	case len(want) == 0:
		return true
	}
	label := b.Labels[0]
	if detail := badLabel(b.Type, label); detail != "" {
		p.add(b.LabelRanges[0], "Label cannot be used", "%q: %s", label, detail)
		return false
	}
	for _, other := range p.byType[b.Type] {
		if other.Labels[0] == label && b.Type != "experiment" && b.Type != "executor" {
			p.add(b.DefRange(), fmt.Sprintf("The %s %q is there twice", b.Type, label), "The first is at %s. Rename or remove one of them.", place(other.DefRange()))
			return false
		}
	}
	return true
}

func badLabel(kind, label string) string {
	switch {
	case len(label) > 100:
		return "at most 100 characters."
	case kind == "experiment" && !isFileName(label):
		return "the name becomes the name of a folder: write letters, digits, \".\", \"_\" and \"-\", a letter or digit first."
	case kind == "verifier" && label == "":
		return "write the name by which tasks call the verifier."
	case kind != "experiment" && kind != "verifier" && !hclsyntax.ValidIdentifier(label):
		return "write letters, digits, \"_\" and \"-\", a letter first, so that it can be referred to."
	}
	return ""
}

func isFileName(s string) bool {
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && (i == 0 || r != '.' && r != '_' && r != '-') {
			return false
		}
	}
	return s != ""
}

// body checks the names in a body, and in the blocks in it, against fields.
func (p *parts) body(body *hclsyntax.Body, fs []field, blockType string) {
	if blockType == "locals" {
		p.free(body, "locals")
		return
	}
	for _, a := range inOrder(body.Attributes) {
		i := slices.IndexFunc(fs, func(f field) bool { return f.Name == a.Name })
		switch {
		case blockType == "matrix" && i < 0: // an axis
		case i < 0:
			p.add(a.NameRange, "Unknown name", "There is no %q here.%s", a.Name, eval.Suggest(a.Name, namesOf(fs)))
		case !fs[i].isAttribute():
			p.add(a.NameRange, "Not an attribute", "%q is a block: write %s { … }, without \"=\".", a.Name, a.Name)
		}
	}
	p.nested(body, fs, blockType)
}

func namesOf(fs []field) []string {
	names := make([]string, len(fs))
	for i, f := range fs {
		names[i] = f.Name
	}
	return names
}

// nested checks the blocks of a body.
func (p *parts) nested(body *hclsyntax.Body, fs []field, blockType string) {
	first := map[string]*hclsyntax.Block{}
	for _, b := range body.Blocks {
		if b.Type == "matrix" && blockType == "experiment" {
			p.twice(first, b)
			p.body(b.Body, matrix.fields, "matrix")
			continue
		}
		i := slices.IndexFunc(fs, func(f field) bool { return f.Name == b.Type && f.isBlock() })
		if i < 0 {
			p.unknownBlock(b, fs, blockType)
			continue
		}
		f := fs[i]
		if want := btoi(f.Type == pluginconfig.BlockMap); len(b.Labels) < want {
			p.add(b.DefRange(), "Label is missing", "A block %q has a name: %s \"name\" { … }.", b.Type, b.Type)
		} else if len(b.Labels) > want {
			p.add(b.LabelRanges[want], "Too many labels", "A block %q has %d, this is %q.", b.Type, want, b.Labels[want])
		}
		if !f.many && f.Type != pluginconfig.BlockList && f.Type != pluginconfig.BlockMap {
			p.twice(first, b)
			if a := body.Attributes[f.Name]; a != nil {
				p.add(b.DefRange(), fmt.Sprintf("%q is there twice", f.Name), "It is also an attribute at %s. Keep one of them.", place(a.SrcRange))
			}
		}
		switch f.body {
		case "free":
			p.free(b.Body, b.Type)
		case "config": // known when the plugin is
		default:
			p.body(b.Body, f.fields, b.Type)
		}
	}
}

func (p *parts) unknownBlock(b *hclsyntax.Block, fs []field, blockType string) {
	names := namesOf(fs)
	if blockType == "experiment" {
		names = append(names, "matrix")
	}
	if slices.ContainsFunc(fs, func(f field) bool { return f.Name == b.Type }) {
		p.add(b.TypeRange, "Not a block", "%q is an attribute: write %s = …", b.Type, b.Type)
		return
	}
	p.add(b.TypeRange, "Unknown name", "There is no block %q here.%s", b.Type, eval.Suggest(b.Type, names))
}

func (p *parts) twice(first map[string]*hclsyntax.Block, b *hclsyntax.Block) {
	if f := first[b.Type]; f != nil {
		p.add(b.DefRange(), fmt.Sprintf("More than one %s block", b.Type), "The first is at %s. Keep one of them.", place(f.DefRange()))
		return
	}
	first[b.Type] = b
}

// free checks a body that may hold any attributes.
func (p *parts) free(body *hclsyntax.Body, name string) {
	for _, b := range body.Blocks {
		p.add(b.DefRange(), "Unexpected block", "A block %q holds attributes only: %s = …", name, b.Type)
	}
}

// inOrder are the attributes of a body in the order of the file.
func inOrder(as hclsyntax.Attributes) []*hclsyntax.Attribute {
	out := make([]*hclsyntax.Attribute, 0, len(as))
	for _, a := range as {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *hclsyntax.Attribute) int { return a.SrcRange.Start.Byte - b.SrcRange.Start.Byte })
	return out
}

func place(r hcl.Range) string { return fmt.Sprintf("%s line %d", r.Filename, r.Start.Line) }

func list(names []string) string {
	out := ""
	for i, n := range names {
		switch {
		case i > 0 && i == len(names)-1:
			out += " and "
		case i > 0:
			out += ", "
		}
		out += n
	}
	return out
}
