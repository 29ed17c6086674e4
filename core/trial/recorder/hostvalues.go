package recorder

import "github.com/berth-eval/berth/plugins/task"

// HostValues are the values of the host's variables that a task may see: they
// may be secret, and the record does without them.
func HostValues(t *task.Task, lookup func(string) (string, bool)) []string {
	var out []string
	for _, e := range t.Envs() {
		for _, name := range e.HostVars() {
			if v, ok := lookup(name); ok {
				out = append(out, v)
			}
		}
	}
	return out
}
