package trial

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// imageFault returns an error of the task, or nil, when the agent's first
// session could not start anything: the image lacks the user, the folder or the
// shell that the agent needs, which would fail every agent. After one program
// has run, the agent may have removed what is missing.
func (s *stage) imageFault(ctx context.Context) error {
	if s.i > 0 || s.a.sandbox.Gone() {
		return nil
	}
	starts, err := s.a.sandbox.Starts(ctx, sessionID(s.a.role(), s.i+1))
	if err != nil || starts.Started > 0 || starts.Refused == "" {
		return nil //nolint:nilerr // without certainty it is not an excuse
	}
	return outcome.On(record.ByTask, fmt.Errorf("no program of the agent could be started in the sandbox: %s", starts.Refused))
}

// findMissingUsers records which users of verifiers the sandbox lacks before
// the agent starts. The setup of a later stage may still create one.
func (a *attempt) findMissingUsers(ctx context.Context) error {
	a.missingUsers = map[string]bool{}
	for i := range a.task.Stages {
		user := a.newStage(i).verifyUser()
		if _, known := a.missingUsers[user]; known || user == "" {
			continue
		}
		err := a.sandbox.HasUser(ctx, user)
		if a.missingUsers[user] = errors.Is(err, sandbox.ErrNotFound); err != nil && !a.missingUsers[user] {
			return fmt.Errorf("look up user %q: %w", user, err)
		}
	}
	return nil
}
