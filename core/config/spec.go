package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/config/internal/eval"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
)

// BlockSpec describes a block that may be written in an experiment file, for
// references, editors and checks.
type BlockSpec struct {
	Name string `json:"name"`
	// Labels are what the labels after the name are for; empty means none.
	Labels []string `json:"labels,omitempty"`
	Doc    string   `json:"doc"`
	// Repeated blocks may be written more than once.
	Repeated bool `json:"repeated,omitempty"`
	// Free blocks take any attribute; FreeDoc says what it means.
	Free    bool   `json:"free,omitempty"`
	FreeDoc string `json:"free_doc,omitempty"`
	// Plugin says that the plugin's schema describes the body.
	Plugin     bool        `json:"plugin,omitempty"`
	Attributes []AttrSpec  `json:"attributes,omitempty"`
	Blocks     []BlockSpec `json:"blocks,omitempty"`
}

// AttrSpec describes an attribute.
type AttrSpec struct {
	Name string `json:"name"`
	// Type is a type of package plugins/config, or one of "agent", "model", …
	// for a reference, or "list(dataset)" and "map(model)" for several.
	Type     string          `json:"type"`
	Doc      string          `json:"doc"`
	Default  json.RawMessage `json:"default,omitempty"`
	Enum     []string        `json:"enum,omitempty"`
	Required bool            `json:"required,omitempty"`
	Secret   bool            `json:"secret,omitempty"`
	// PerRun attributes are the same for all cells: they cannot read the matrix.
	PerRun bool `json:"per_run,omitempty"`
}

// field is a field of a block with what only an experiment knows of it.
type field struct {
	pluginconfig.Field

	ref     string // type of the block that it refers to
	body    string // "config" or "free": a block with a body of its own kind
	perRun  bool
	secrets bool // may hold secrets
	many    bool // a free block that may be repeated
	fields  []field
}

// block is a type of block of the file.
type block struct {
	name   string
	labels []string
	doc    string
	fields []field
	// free is what any further attribute means; empty means that there is none.
	free string
}

func newBlock(name string, labels []string, doc string, body any) block {
	return block{name: name, labels: labels, doc: doc, fields: mustFields(reflect.TypeOf(body))}
}

// blocks are the blocks of the file, in the order of the reference.
var blocks = []block{
	newBlock("experiment", []string{"name"}, "What is run, and how often. Exactly one.", experimentBlock{}),
	newBlock("dataset", []string{"label"}, "A folder of tasks.", datasetBlock{}),
	newBlock("environment", []string{"label"}, "How sandboxes are made.", environmentBlock{}),
	newBlock("agent", []string{"label"}, "Who works on the tasks.", agentBlock{}),
	newBlock("model", []string{"label"}, "A model and how to reach it.", modelBlock{}),
	newBlock("verifier", []string{"label"}, "What the experiment adds to a verifier that tasks name; the label is that name.", verifierBlock{}),
	newBlock("user", nil, "Plays the simulated user of tasks that have one, with its own models, budget and sandbox. At most one.", userBlock{}),
	newBlock("executor", []string{"kind"}, "Where attempts run; \"local\", this machine, without the block. At most one.", executorBlock{}),
	newBlock("variable", []string{"name"}, "A value that is given from outside, readable as var.<name>.", variableBlock{}),
	{name: "locals", doc: "Names for expressions, readable as local.<name>. May be repeated.", free: "An expression, readable as local.<name>."},
}

// matrix is the one block of an experiment that has fields of both kinds.
var matrix = block{
	name: "matrix", doc: "Free choices: every combination of their values is a cell.",
	free:   "An axis: the list of its values, readable as matrix.<axis>. The axes agent, model, environment and dataset hold references and choose that part of the cell.",
	fields: mustFields(reflect.TypeFor[matrixBlock]()),
}

func blockOf(name string) block {
	i := slices.IndexFunc(blocks, func(b block) bool { return b.name == name })
	return blocks[i]
}

// mustFields reads the tags of a block. A fault is a bug of this package.
func mustFields(t reflect.Type) []field {
	s, err := pluginconfig.SchemaOf(reflect.New(t).Interface())
	if err != nil {
		panic(fmt.Sprintf("core/config: %s: %v", t, err))
	}
	return withTags(t, s.Fields)
}

func withTags(t reflect.Type, base []pluginconfig.Field) []field {
	var fs []field
	i := 0
	for sf := range t.Fields() {
		f := field{
			Field: base[i], ref: sf.Tag.Get("ref"), body: sf.Tag.Get("body"), perRun: sf.Tag.Get("per") == "run",
			secrets: sf.Tag.Get("secrets") == "true" || base[i].Secret,
		}
		i++
		f.many = f.body != "" && f.Type != pluginconfig.Any
		if f.Type.IsBlock() {
			inner := sf.Type
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			f.fields = withTags(inner, f.Fields)
		}
		fs = append(fs, f)
	}
	return fs
}

// isBlock says whether the field is written as a block.
func (f field) isBlock() bool { return f.body != "" || f.Type.IsBlock() }

// isAttribute says whether the field may be written as an attribute.
func (f field) isAttribute() bool { return !f.isBlock() || f.body == "free" && !f.many }

// typeName is the type for people.
func (f field) typeName() string {
	if f.ref == "" {
		return string(f.Type)
	}
	return strings.Replace(string(f.Type), "string", f.ref, 1)
}

// Spec describes every block of an experiment file, in the order in which a
// reference should list them.
func Spec() []BlockSpec {
	var specs []BlockSpec
	for _, b := range blocks {
		s := b.spec()
		if b.name == "experiment" {
			m := matrix.spec()
			for i := range m.Blocks {
				m.Blocks[i].Free, m.Blocks[i].FreeDoc = true, "An axis, and its value or a list of values."
			}
			s.Blocks = append([]BlockSpec{m}, s.Blocks...)
		}
		specs = append(specs, s)
	}
	return specs
}

func (b block) spec() BlockSpec {
	s := BlockSpec{
		Name: b.name, Labels: b.labels, Doc: b.doc, Free: b.free != "", FreeDoc: b.free,
		Repeated: b.name == "locals" || len(b.labels) > 0 && b.name != "experiment" && b.name != "executor",
	}
	s.Attributes, s.Blocks = specsOf(b.fields)
	return s
}

func specsOf(fs []field) (attrs []AttrSpec, nested []BlockSpec) {
	for _, f := range fs {
		if !f.isBlock() {
			attrs = append(attrs, AttrSpec{
				Name: f.Name, Type: f.typeName(), Doc: f.Doc, Default: f.Default, Enum: f.Enum,
				Required: f.Required, Secret: f.Secret, PerRun: f.perRun,
			})
			continue
		}
		s := BlockSpec{
			Name: f.Name, Doc: f.Doc, Free: f.body == "free", Plugin: f.body == "config",
			Repeated: f.many || f.Type == pluginconfig.BlockList,
		}
		s.Attributes, s.Blocks = specsOf(f.fields)
		nested = append(nested, s)
	}
	return attrs, nested
}

// FunctionNames are the functions that expressions may call, sorted.
func FunctionNames() []string { return eval.FunctionNames() }
