package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/eval"
	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/source"
	"github.com/berth-eval/berth/core/experiment"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/suggest"
)

// BlockSpec describes a block that may be written in an experiment file.
type BlockSpec struct {
	Name   string
	Labels []string // what the labels after the name are for
	Doc    string
	// Free says what any other attribute means; empty means that there is none.
	Free string
	// Plugin says that the plugin's schema describes the body.
	Plugin bool
	// Attributes may also have the type "agent", "model", … for a reference,
	// or "list(dataset)" and "map(model)" for several.
	Attributes []pluginconfig.Field
	Blocks     []BlockSpec
}

// block is a type of block of the file.
type block struct {
	name   string
	labels []string
	doc    string
	fields []source.Field
	// free is what any further attribute means; empty means that there is none.
	free string
}

func newBlock(name string, labels []string, doc string, body any) block {
	return block{name: name, labels: labels, doc: doc, fields: source.Fields(reflect.TypeOf(body))}
}

// blocks are the blocks of the file, in the order of the reference.
var blocks = []block{
	newBlock("experiment", []string{"name"}, "What to run, and how often. Exactly one.", experimentBlock{}),
	newBlock("dataset", []string{"label"}, "A folder of tasks.", datasetBlock{}),
	newBlock("environment", []string{"label"}, "How sandboxes are created.", environmentBlock{}),
	newBlock("agent", []string{"label"}, "An agent that works on the tasks.", agentBlock{}),
	newBlock("model", []string{"label"}, "A model and how to reach it.", modelBlock{}),
	newBlock("verifier", []string{"label"}, "What the experiment adds to a verifier that tasks name; the label is that name. Its limits of models are for each attempt.", verifierBlock{}),
	newBlock("user", nil, "Plays the simulated user of tasks that have one. It has no sandbox. Its limits of models are for each attempt. At most one.", userBlock{}),
	newBlock("executor", []string{"kind"}, "Where attempts run. Without the block, they run on this machine. With \"pilots\", pilots that you start with berth pilot make them. With \"slurm\", berth run submits the pilots as jobs of Slurm. At most one block.", experiment.Executor{}),
	newBlock("variable", []string{"name"}, "A value that is given from outside, readable as var.<name>.", variableBlock{}),
	{name: "locals", doc: "Names for expressions, readable as local.<name>. May be repeated.", free: "An expression, readable as local.<name>."},
}

// An experiment has the matrix, whose own blocks are declared apart.
func init() {
	fs := blockOf("experiment").fields
	i := slices.IndexFunc(fs, func(f source.Field) bool { return f.Body == source.BodyAxes })
	fs[i].Nested = source.Fields(reflect.TypeFor[matrixBlock]())
}

const axisDoc = "An axis: the list of its values, readable as matrix.<axis>. The axes agent, model, environment and dataset hold references and choose that part of the cell."

func blockOf(name string) block {
	i := slices.IndexFunc(blocks, func(b block) bool { return b.name == name })
	return blocks[i]
}

// Spec describes every block of an experiment file, in the order in which a
// reference should list them.
func Spec() []BlockSpec {
	specs := make([]BlockSpec, 0, len(blocks))
	for _, b := range blocks {
		s := BlockSpec{Name: b.name, Labels: b.labels, Doc: b.doc, Free: b.free}
		s.Attributes, s.Blocks = specsOf(b.fields)
		specs = append(specs, s)
	}
	return specs
}

func specsOf(fs []source.Field) (attrs []pluginconfig.Field, nested []BlockSpec) {
	for _, f := range fs {
		if !f.IsBlock() {
			a := f.Field
			a.Type = f.TypeName()
			attrs = append(attrs, a)
			continue
		}
		s := BlockSpec{Name: f.Name, Doc: f.Doc, Plugin: f.Body == source.BodyConfig}
		switch {
		case f.Body == source.BodyAxes:
			s.Free = axisDoc
		case f.Body == source.BodyFree && f.Many:
			s.Free = "An axis, and its value or a list of values."
		case f.Body == source.BodyFree:
			s.Free = "Any name and value."
		}
		s.Attributes, s.Blocks = specsOf(f.Nested)
		nested = append(nested, s)
	}
	return attrs, nested
}

// FunctionNames are the functions that expressions may call, sorted.
func FunctionNames() []string { return eval.FunctionNames() }

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
