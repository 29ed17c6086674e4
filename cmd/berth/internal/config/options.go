package config

import (
	"encoding/json"

	"github.com/berth-eval/berth/plugins"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
)

// Options are the user's choices for loading. The zero value reads no host
// variable and no file outside the experiment's folder.
type Options struct {
	// Vars are --var NAME=VALUE, in order; the last of a name wins.
	Vars []string
	// VarFiles are --var-file PATH, in order, as HCL attributes or (*.json) as a
	// JSON object. Vars win over VarFiles, these over BERTH_VAR_name.
	VarFiles []string
	// Values are values of variables as they are in Experiment.Variables. VarFiles win
	// over them.
	Values map[string]json.RawMessage
	// AllowRead are folders outside the experiment's that functions may read.
	AllowRead []string
	// LookupEnv reads a host variable for env(), secret() and BERTH_VAR_name;
	// nil means that none is set.
	LookupEnv func(name string) (string, bool)
	// BaseDir is the folder that relative paths start from; empty means the
	// folder of the experiment. For an experiment that is read back from a run.
	BaseDir string
	// Kept is where a run keeps its copy of a file that functions read or that
	// holds the replies of a model, by the name that it has in Experiment.Files.
	// Nil reads files where they are; with it only copies are read.
	Kept func(name string) string
	// Datasets are folders that datasets are read from instead of their own, by
	// label. For the tasks of a run from another machine.
	Datasets map[string]string
	// DefaultEnvironment is the plugin of an experiment without any environment;
	// empty means that it must have one.
	DefaultEnvironment string
	// Providers are the names that a model's provider may have; empty means any.
	Providers []string
	// CheckScript says what is wrong with the replies of a scripted model; nil
	// takes them as they are.
	CheckScript func(path string, content []byte) error
	// Schemas asks plugins what their `config` blocks may hold; nil takes the
	// blocks as they are, without a check.
	Schemas Schemas
	// Formats are the names that a dataset's format may have; empty means any.
	Formats []string
}

// KindFormat is the kind under which Schemas is asked for the settings of a task
// format: they are in the `config` block of a dataset.
const KindFormat plugins.Kind = "dataset"

// Schemas returns the configuration schema of a plugin. Its error says why
// there is none (no such plugin, it does not start) and is shown at the block
// that names the plugin. Called once per plugin, from one goroutine.
type Schemas func(kind plugins.Kind, plugin string) (pluginconfig.Schema, error)
