package recorder

import (
	"slices"

	"github.com/berth-eval/berth/plugins/task"
)

// HostValues are the values of the host's variables that a task may see: they
// may be secret, and the record does without them.
func HostValues(t *task.Task, lookup func(string) (string, bool)) []string {
	var out []string
	for _, e := range environments(t) {
		for _, name := range e.HostVars() {
			if v, ok := lookup(name); ok {
				out = append(out, v)
			}
		}
	}
	return out
}

// environments are all variables that a task names.
func environments(t *task.Task) []task.Env {
	es := []task.Env{t.Environment.Env}
	for i := range t.Environment.Sidecars {
		es = append(es, t.Environment.Sidecars[i].Env)
	}
	for i := range t.Services {
		es = append(es, t.Services[i].Command.Env)
	}
	for i := range t.MCPServers {
		es = append(es, t.MCPServers[i].Env, t.MCPServers[i].Headers)
	}
	for i := range t.Stages {
		s := &t.Stages[i]
		es = append(es, s.Agent.Env, s.Verify.Env)
		if s.Reference != nil {
			es = append(es, s.Reference.Env)
		}
		for _, c := range slices.Concat(s.Setup, s.Hooks) {
			es = append(es, c.Env)
		}
	}
	return es
}
