package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/source"
	"github.com/berth-eval/berth/plugins/suggest"
)

// parts are the blocks of an experiment by type and label, over all its files.
type parts struct {
	source.Checker

	byType map[string][]*hclsyntax.Block // in the order of the files
}

// sortBlocks takes the bodies apart and checks everything that needs no evaluation:
// types, labels, names that are unknown or twice.
func sortBlocks(src *source.Source) *parts {
	p := &parts{byType: map[string][]*hclsyntax.Block{}}
	names := make([]string, len(blocks))
	for i, b := range blocks {
		names[i] = b.name
	}
	for _, body := range src.Bodies {
		for _, a := range source.InOrder(body.Attributes) {
			p.Add(a.SrcRange, "Unexpected attribute", "%q is outside of any block. Only blocks are allowed here: %s.", a.Name, strings.Join(names, ", "))
		}
		for _, b := range body.Blocks {
			if !slices.Contains(names, b.Type) {
				p.Add(b.TypeRange, "Unknown block type", "There is no block %q.%s", b.Type, suggest.Hint(b.Type, names))
				continue
			}
			if p.labels(b) {
				p.byType[b.Type] = append(p.byType[b.Type], b)
			}
			if b.Type == "locals" {
				p.Free(b.Body, b.Type)
				continue
			}
			p.Body(b.Body, blockOf(b.Type).fields)
		}
	}
	for _, one := range []string{"experiment", "user", "executor"} {
		if bs := p.byType[one]; len(bs) > 1 {
			p.Add(bs[1].DefRange(), "More than one "+one+" block", "The first is at %s. Keep one of them.", source.Place(bs[0].DefRange()))
		}
	}
	if len(p.byType["experiment"]) == 0 && !p.Diags.HasErrors() && !src.Unreadable {
		p.Diags = append(p.Diags, source.Problem("No experiment block", "One of the files needs a block such as: experiment \"name\" { datasets = [dataset.x], agent = agent.y }.")...)
	}
	return p
}

// labels checks the labels of a top-level block.
func (p *parts) labels(b *hclsyntax.Block) bool {
	want := blockOf(b.Type).labels
	switch {
	case len(b.Labels) < len(want):
		p.Add(b.DefRange(), "Label is missing", "A block %q has a %s: %s \"name\" { … }.", b.Type, want[0], b.Type)
		return false
	case len(b.Labels) > len(want):
		p.Add(b.LabelRanges[len(want)], "Too many labels", "A block %q has %d, this is %q.", b.Type, len(want), b.Labels[len(want)])
		return false
	case len(want) == 0:
		return true
	}
	label := b.Labels[0]
	if detail := badLabel(b.Type, label); detail != "" {
		p.Add(b.LabelRanges[0], "Label cannot be used", "%q: %s", label, detail)
		return b.Type == "experiment" // no block refers to it, and what stands in it can be checked
	}
	for _, other := range p.byType[b.Type] {
		if other.Labels[0] == label && b.Type != "experiment" && b.Type != "executor" {
			p.Add(b.DefRange(), fmt.Sprintf("%s %q is defined twice", b.Type, label), "The first is at %s. Rename or remove one of them.", source.Place(other.DefRange()))
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
