package config

import (
	"encoding/json"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/plugins/dialect"
)

// The blocks of an experiment file, as structs whose tags are the only
// declaration of what may be written: package plugins/config reads `berth`,
// `default`, `enum`, `required`, `secret` and `doc`; package source reads the rest:
//
//	ref:"agent"     the value is a reference to a block of that type
//	body:"config"   a block that the plugin's own schema describes
//	body:"axes"     the matrix: any attributes, and the blocks of matrixBlock
//	body:"free"     a block, or an attribute, with any names and values
//	per:"run"       the same for all cells: the matrix cannot be read
//	secrets:"true"  may hold secrets, and need not
//	min:"1" max:"9" bounds of a number; without max see rules.numbers
//
// Report, and types of the packages cell, dialect and experiment, are declared in the
// same way.
//
// After decoding a reference is the label of its block.

type experimentBlock struct {
	Description string   `berth:"description" per:"run" doc:"What the experiment is for; shown in reports."`
	Repeat      int      `berth:"repeat" per:"run" default:"1" min:"1" max:"100000" doc:"Repetitions of every cell × task, 1 or more."`
	Datasets    []string `berth:"datasets" ref:"dataset" doc:"The tasks to run. Required, unless the matrix has an axis dataset."`
	Environment string   `berth:"environment" ref:"environment" doc:"Where sandboxes are created, unless the matrix has an axis environment. Absent: local, which is an error if there is an environment block."`
	Agent       string   `berth:"agent" ref:"agent" doc:"The agent that works on the tasks. Required, unless the matrix has an axis agent."`
	Model       string   `berth:"model" ref:"model" doc:"The model that the agent uses, unless its own block or an axis model says so."`
	Verify      string   `berth:"verify" enum:"live,restarted,image,separate,copies" doc:"Verification mode for all datasets. It may strengthen what a task declares, never weaken it."`

	Keep    string `berth:"keep" per:"run" enum:"failed,all" doc:"Keeps what the agent left, for berth regrade: of attempts that did not pass, or of all. Absent: of none."`
	KeepMiB int64  `berth:"keep_mib" per:"run" default:"1024" min:"1" max:"1099511627776" doc:"With keep: most that is kept of an attempt, in MiB; of one with more, nothing is."`

	Matrix   json.RawMessage      `berth:"matrix" body:"axes" doc:"Axes: every combination of their values is a cell."`
	Limits   experiment.RunLimits `berth:"limits" per:"run" doc:"Limits of the whole run."`
	PerTrial cell.Limits          `berth:"per_trial" doc:"Limits of each attempt. Those of models are about the agent's own."`
	PerCell  cell.Budget          `berth:"per_cell" doc:"Limits of each cell, for all its attempts together."`
	Report   Report               `berth:"report" per:"run" doc:"How tables of the results are made. It changes no result."`
	Retry    *experiment.Retry    `berth:"retry" per:"run" doc:"When a trial gets another attempt. Absent: none does. A trial with a result of the agent never does, which would be best-of-n."`
}

type datasetBlock struct {
	experiment.Dataset

	Success *successBlock   `berth:"success" doc:"When an attempt passes, instead of the tasks' own rule."`
	Config  json.RawMessage `berth:"config" body:"config" doc:"Settings of the format; see its reference."`
}

type successBlock struct {
	Key     string  `berth:"key" required:"true" doc:"Name of the score that decides. If a verdict does not have it, its decision pass or fail counts."`
	AtLeast float64 `berth:"at_least" required:"true" doc:"Smallest value that passes."`
}

type environmentBlock struct {
	Plugin        string            `berth:"plugin" required:"true" doc:"Environment plugin."`
	Network       string            `berth:"network" enum:"none,allow,public" doc:"What sandboxes may reach. Absent: what each task asks for. none also runs tasks that ask for more, and marks their results modified. public gives tasks that ask for it the environment's own network, which also leads to this machine and private networks."`
	AllowHosts    []string          `berth:"allow_hosts" doc:"Hosts for network = \"allow\": names, \"*.name\", addresses, networks as address/bits."`
	Env           map[string]string `berth:"env" secrets:"true" doc:"Variables for every command in the sandbox."`
	Limits        resourcesBlock    `berth:"limits" doc:"Resources of one sandbox, instead of what the task asks for."`
	Config        json.RawMessage   `berth:"config" body:"config" doc:"Settings of the plugin; see its reference."`
	Surface       string            `berth:"surface" doc:"Plugin that opens a surface (observe and act) on the sandboxes of plugin, for tasks with one. Default: plugin itself."`
	SurfaceConfig json.RawMessage   `berth:"surface_config" body:"config" doc:"Settings of the surface's plugin."`
}

type resourcesBlock struct {
	CPUs       float64 `berth:"cpus" max:"1000000" doc:"Number of cores, such as 0.5."`
	MemoryMiB  int64   `berth:"memory_mib" doc:"Memory in MiB."`
	StorageMiB int64   `berth:"storage_mib" doc:"What the sandbox may write, in MiB."`
	Pids       int64   `berth:"pids" doc:"Number of processes."`
	GPUs       int64   `berth:"gpus" doc:"Number of GPUs."`
}

type modelBlock struct {
	Provider    string          `berth:"provider" required:"true" doc:"The provider's dialect; \"script\" replies from a file."`
	Name        string          `berth:"name" doc:"The model, as the provider calls it. Required, unless there is a script."`
	APIKey      string          `berth:"api_key" secret:"true" doc:"The provider's key, from secret(). It never enters a sandbox or a file."`
	APIKeys     []string        `berth:"api_keys" secret:"true" doc:"Several keys, in place of api_key. Attempts are spread over them, and a request that one cannot serve goes to another."`
	Fallback    []string        `berth:"fallback" ref:"model" doc:"Models of the same provider that serve a request, in this order, if this one is down or overloaded, or all retries failed."`
	BaseURL     string          `berth:"base_url" doc:"Address of the provider. Absent: the provider's own."`
	CAFile      string          `berth:"ca_file" doc:"File with the certificates (PEM) of a private authority, relative to the folder of the experiment, beside those of the machine."`
	Script      string          `berth:"script" doc:"File with the replies of a scripted model, relative to the folder of the experiment."`
	Price       *dialect.Price  `berth:"price" doc:"USD per million tokens. Absent: from the price table, or unknown, which is not zero."`
	Parameters  json.RawMessage `berth:"parameters" body:"free" doc:"Parameters of every request, such as temperature, by the provider's names."`
	AllowModels []string        `berth:"allow_models" doc:"Further models that a request may name; others are served by this one."`
	AllowHosted []string        `berth:"allow_hosted" doc:"Tools that the provider may run or fetch with although the sandbox has no network, by the names in the finding hosted_tool."`
	Replay      string          `berth:"replay" doc:"Run whose recorded replies are served instead of asking the provider."`
	InFlight    int             `berth:"in_flight" doc:"Number of requests at the same time with one key. 0: adapted to the provider's rate limit."`

	ContextTokens int64 `berth:"context_tokens" doc:"Tokens that a request may have; budgets set them aside when it refers to content that the provider holds or fetches. 0: as documented for the model, else 1048576."`

	FirstByteTimeout *time.Duration `berth:"first_byte_timeout" doc:"Longest wait for the first byte of a response; without streaming, for all of it. Absent: 2m."`
	IdleTimeout      *time.Duration `berth:"idle_timeout" doc:"Longest pause within a response. Absent: 1m."`
}

type agentBlock struct {
	Plugin string            `berth:"plugin" required:"true" doc:"Agent plugin."`
	Oracle bool              `berth:"oracle" doc:"Hands the reference solution of each task to the agent. The result says so."`
	Model  string            `berth:"model" ref:"model" doc:"The agent's model, instead of the cell's."`
	Models map[string]string `berth:"models" ref:"model" doc:"Further models, by the name that the agent asks for."`
	Env    map[string]string `berth:"env" secrets:"true" doc:"Variables for the agent's own programs."`
	Config json.RawMessage   `berth:"config" body:"config" doc:"Settings of the plugin; see its reference."`

	InFlight int `berth:"in_flight" doc:"Number of requests to models at the same time, in all attempts of the agent together. 0: no separate limit."`

	SameSession bool `berth:"same_session" doc:"Runs all stages of a task in one session: the agent keeps its conversation. Otherwise each stage begins a new session."`

	PriorTrajectory string `berth:"prior_trajectory" doc:"File with a trajectory (ATIF) from which the agent continues in every task, instead of the task's own; relative to the folder of the experiment."`
}

type verifierBlock struct {
	Plugin string            `berth:"plugin" doc:"Verifier plugin, instead of the one with the label's name."`
	Model  string            `berth:"model" ref:"model" doc:"Short for models = { default = … }."`
	Models map[string]string `berth:"models" ref:"model" doc:"Models, by the name that the verifier asks for."`
	Env    map[string]string `berth:"env" secrets:"true" doc:"Variables for the commands of the verification."`
	Config json.RawMessage   `berth:"config" body:"config" doc:"Settings of the plugin; see its reference."`

	cell.Budget
}

type userBlock struct {
	Agent   string        `berth:"agent" required:"true" ref:"agent" doc:"The agent that plays the user."`
	Model   string        `berth:"model" ref:"model" doc:"Its model, instead of the agent block's own."`
	Persona string        `berth:"persona" doc:"Who the user is, beside what the task says."`
	Time    time.Duration `berth:"time" doc:"Deadline of one message; 0: 15 minutes."`
	OnError string        `berth:"on_user_error" enum:"user_error,fixed_line" doc:"What follows when the user's agent or its model fails. user_error: the attempt ends. fixed_line: the verifier supervisor sends a fixed line. Absent: what the task says, or user_error."`

	cell.Budget
}

type variableBlock struct {
	Description string            `berth:"description" doc:"What the variable is for."`
	Type        json.RawMessage   `berth:"type" doc:"Type of the value, such as string, number, bool, list(string), map(number), object({ a = string, b = optional(number, 1) }). Absent: any value, and --var and environment variables give strings; with type = any they give HCL expressions."`
	Default     json.RawMessage   `berth:"default" doc:"Value when none is given. Absent: one must be given."`
	Sensitive   bool              `berth:"sensitive" doc:"The value is a secret: it is never printed or stored."`
	Validation  []validationBlock `berth:"validation" doc:"A rule for the value. May be repeated."`
}

type validationBlock struct {
	Condition    bool   `berth:"condition" required:"true" doc:"True for valid values; reads var.<this variable>."`
	ErrorMessage string `berth:"error_message" required:"true" doc:"Message if the condition is false."`
}

type matrixBlock struct {
	Exclude []json.RawMessage `berth:"exclude" body:"free" doc:"Leaves out the cells that have all of these values; a list means any of them. May be repeated."`
	Include []json.RawMessage `berth:"include" body:"free" doc:"Adds cells with these values, which need not be on the axes; axes that it does not name take all their values. May be repeated."`
}
