package sandboxd_test

import (
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/sandbox/sandboxd"
)

// A command whose time is over at the moment of a freeze still ends after it.
func TestADeadlineThatIsFrozenAtItsEndStillComes(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	sandboxd.FrozenAtItsEnd(func() { close(ended) })
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the deadline never comes")
	}
}
