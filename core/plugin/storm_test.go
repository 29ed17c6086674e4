package plugin

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
)

// At whatever moment a plugin is killed, each call either succeeds or reports
// that the plugin is gone, and the next call gets a new process.
func TestAPluginThatIsKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	h.maxCrashes = 1000
	a, _, err := h.Agent(t.Context(), "odd")
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(2 * time.Second)
	var pid, good, gone, kills atomic.Int64
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for time.Now().Before(end) {
				s, err := a.Open(t.Context(), agent.Setup{Role: agent.RoleAgent})
				var y agent.Yield
				if err == nil {
					y, err = s.Turn(t.Context(), agent.Message{Text: "pid"}, &notes{})
				}
				switch {
				case errors.Is(err, ErrPluginGone):
					gone.Add(1)
				case err != nil:
					t.Errorf("a call ended with %v", err)
				default:
					good.Add(1)
					pid.Store(int64(y.ExitCode))
				}
			}
		})
	}
	wait.Go(func() {
		for time.Now().Before(end) {
			if p := pid.Swap(0); p != 0 && syscall.Kill(int(p), syscall.SIGKILL) == nil {
				kills.Add(1)
			}
			time.Sleep(20 * time.Millisecond) // so that calls go well between two kills
		}
	})
	wait.Wait()
	t.Logf("%d calls went well, %d met one of %d kills", good.Load(), gone.Load(), kills.Load())
	if good.Load() == 0 || gone.Load() == 0 {
		t.Error("the test tried nothing")
	}
}
