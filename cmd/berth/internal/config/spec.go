package config

import (
	"reflect"
	"slices"

	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/eval"
	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/source"
	"github.com/berth-eval/berth/core/experiment"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
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
