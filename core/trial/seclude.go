package trial

import (
	"context"

	"github.com/berth-eval/berth/core/record"
)

// leftRunning records what the agent left running in mode live. If the environment
// can keep the tests from it, the record waits until they have ended.
func (s *stage) leftRunning(p record.Phase, left string) {
	s.a.leftRunning = true
	if s.a.sandbox.Hello.Secludes && s.inSandbox(s.atEnd()) {
		s.remains = left
		return
	}
	s.a.recorder.Exposed(p, "left_running", "the agent left %s running", left)
}

// seclude keeps the verifiers' folders from what the agent left running: the tests
// work in a mount namespace that it cannot reach. The folders exist and are empty.
func (s *stage) seclude(ctx context.Context, p record.Phase) {
	if s.remains == "" {
		return
	}
	why := "files of the verifier are outside of folders of its own"
	if s.onlyFolders() {
		err := s.graded.Seclude(ctx, s.fresh()...)
		if s.secluded = err == nil; s.secluded {
			return
		}
		why = err.Error() // it depends on what the agent left
	}
	s.a.recorder.Exposed(p, "left_running", "the agent left %s running, and the tests could not be kept from it: %s", s.remains, why)
}

// onlyFolders reports whether everything that is placed for the verifiers is in
// folders that are made for them.
func (s *stage) onlyFolders() bool {
	for i := range s.a.task.Resources {
		if r := &s.a.task.Resources[i]; s.places(r) && !r.Folder {
			return false
		}
	}
	return true
}

// undisturbed records what the agent left running while secluded tests worked. The
// result is exposed if a file changed meanwhile outside of their folders: the tests
// may have written and used it, and what was left could have changed it again.
func (s *stage) undisturbed(ctx context.Context, p record.Phase) {
	if !s.secluded || s.graded.Gone() {
		return
	}
	files, more, err := s.graded.Disturbed(context.WithoutCancel(ctx))
	switch {
	case err != nil:
		s.a.recorder.Exposed(p, "left_running", "the agent left %s running, and it is not known what changed while the tests ran: %s", s.remains, err)
	case len(files) > 0:
		s.a.recorder.Exposed(p, "left_running", "the agent left %s running, and these files changed while the tests ran: %s", s.remains, listed(files, more))
	default:
		s.a.recorder.Note(p, "left_running", "the agent left %s running. The tests worked in folders that it cannot reach, and no other file changed meanwhile", s.remains)
	}
}
