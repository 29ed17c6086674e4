package trial_test

import (
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/task"
)

// An agent without a shell cannot have changed a program, so that one that the
// task itself changes is not the agent's.
func TestOnlyAnAgentWithAShellChangesTools(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		needs     agent.Needs
		integrity record.Integrity
	}{
		{"without a shell", agent.Needs{}, record.Checked},
		{"with a shell", agent.Needs{Shell: true}, record.Exposed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, &scripted{needs: tt.needs}, tests("true"))
			b.task.Stages[0].Hooks = []task.Command{{Argv: []string{"sh", "-c", "echo '#!/bin/sh' > /usr/bin/new-tool && chmod 755 /usr/bin/new-tool"}}}
			r := b.run(t.Context(), t)
			want(t, r, record.Passed, record.Yielded, tt.integrity)
			if found(r, "system_changed") != tt.needs.Shell {
				t.Errorf("findings %+v", r.Findings)
			}
		})
	}
}
