package config

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/source"
	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/plugins"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
)

// Experiment is what one HCL file, or all *.hcl files of a folder, describe.
// It is safe for concurrent use once loaded.
//
// Its cells are the points of the matrix, the last axis fastest, then those that
// were included.
type Experiment struct {
	experiment.Experiment

	// Name is the label of the experiment block; safe as the name of a folder.
	Name        string
	Description string
	// Dir is the absolute folder that relative paths start from.
	Dir    string
	Report Report
	// Files are the *.hcl files as given, and what functions read, sorted.
	Files []File
	// Variables are the values of variables, without those that are sensitive.
	Variables map[string]json.RawMessage

	src    *source.Source
	places map[*cell.Secret]hcl.Range
	blocks map[string][]*hclsyntax.Block
}

// Report says how tables of the results are made. It does not affect results.
type Report struct {
	MaxInfrastructure float64 `berth:"max_infrastructure" default:"0.02" max:"1" doc:"Largest share of a cell's planned trials that may have ended because of infrastructure errors. With more, numbers are refused."`
	Exposed           bool    `berth:"exposed" default:"true" doc:"false: numbers are refused if a result is exposed."`
	Weigh             string  `berth:"weigh" enum:"category" doc:"With \"category\", all categories of tasks weigh the same in success rates. Absent: all trials do."`
}

// File is a file that the experiment is made of.
type File struct {
	// Name is slash-separated and relative to the folder of the experiment, or
	// absolute when it is outside.
	Name  string
	Bytes []byte
	// Read says that a function read it (file, yamldecode, …); false is an
	// *.hcl file of the experiment.
	Read bool
}

// Problems places what is wrong with a block of the file: block is its type,
// such as "agent", label its label, and paths start at the block. An empty path
// is the header of the block. For what a plugin says about its configuration
// see [Experiment.ConfigProblems].
func (e *Experiment) Problems(block, label string, ps []pluginconfig.Problem) Diagnostics {
	var diags hcl.Diagnostics
	for _, p := range ps {
		d := &hcl.Diagnostic{Severity: hcl.DiagError, Summary: p.Summary, Detail: p.Detail}
		if b := e.block(block, label); b != nil {
			d = source.Locate(b, p)
		} else if label != "" {
			d.Summary = fmt.Sprintf("%s %q: %s", block, label, p.Summary)
		}
		diags = append(diags, d)
	}
	return fromHCL(diags, e.src.Files)
}

// ConfigProblems places what a plugin says about the `config` body of a block.
func (e *Experiment) ConfigProblems(kind plugins.Kind, label string, ps []pluginconfig.Problem) Diagnostics {
	inConfig := make([]pluginconfig.Problem, len(ps))
	for i, p := range ps {
		if p.Path == "" {
			p.Path = "config"
		} else {
			p.Path = pluginconfig.Path("config.") + p.Path
		}
		inConfig[i] = p
	}
	return e.Problems(string(kind), label, inConfig)
}

func (e *Experiment) block(kind, label string) *hclsyntax.Block {
	for _, b := range e.blocks[kind] {
		if len(b.Labels) == 0 || b.Labels[0] == label || kind == "experiment" {
			return b
		}
	}
	return nil
}

// CheckSecrets reads every secret that a cell uses, for itself and for the
// verifiers named, and reports those that are missing. Nothing is kept, and no
// value is in what it returns.
func (e *Experiment) CheckSecrets(c *experiment.Cell, verifiers ...string) Diagnostics {
	used := c.Cell
	used.Verifiers = map[string]cell.Verifier{}
	for _, name := range verifiers {
		if v, ok := c.Verifiers[name]; ok {
			used.Verifiers[name] = v
		}
	}
	secrets := used.Uses()
	if c.Model != nil {
		for _, key := range c.Model.ChainKeys() {
			if s := key.Secret(); s != nil && !slices.Contains(secrets, s) {
				secrets = append(secrets, s)
			}
		}
	}
	return e.missing(secrets)
}

// missing are diagnostics for the secrets that cannot be read, in the order of
// the files, each place once.
func (e *Experiment) missing(used []*cell.Secret) Diagnostics {
	l := &loader{src: e.src}
	for _, s := range used {
		if _, err := s.Read(); err != nil {
			l.diags = append(l.diags, source.At(e.places[s], "Secret cannot be read", "%s. Set it (export NAME=…) before the run, or exclude the cells that need it.", err))
		}
	}
	return l.diagnostics()
}
