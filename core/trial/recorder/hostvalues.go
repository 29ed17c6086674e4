package recorder

import "github.com/berth-eval/berth/plugins/task"

// HostValues returns the values of the host variables that a task may see. They
// may be secret, so the record must not contain them.
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
