package report

import (
	"cmp"
	"fmt"

	"github.com/berth-eval/berth/plugins/task"
)

// Grader names a verifier, with its plugin if that has another name. An empty
// plugin is not known.
func Grader(verifier, plugin string) string {
	if plugin == "" || plugin == verifier {
		return verifier
	}
	return fmt.Sprintf("%s (plugin %s)", verifier, plugin)
}

// Rule is the rule of success of a task with a number of stages.
func Rule(s *task.Success, stages int) string {
	if s.Score == "" {
		return "the decisions of the verifiers"
	}
	text := s.Score
	if stages > 1 {
		text = fmt.Sprintf("%s of %s", cmp.Or(s.Reduce, task.ReduceMean), text)
	}
	if s.AtLeast == nil {
		return text + ", without a threshold"
	}
	return fmt.Sprintf("%s >= %g", text, *s.AtLeast)
}
