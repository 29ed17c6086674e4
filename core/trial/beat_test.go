package trial

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/recorder"
)

// A watcher is told of a phase while it lasts, and not after it.
func TestAPhaseUnderWayIsHeardOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var heard []record.Event
		a := &attempt{recorder: recorder.New(nil, time.Now, func(e record.Event) { heard = append(heard, e) })}
		stop := a.beat(record.Phase{Name: record.PhaseVerify, Stage: "main"})
		time.Sleep(3*limits.Heartbeat + time.Second) // in a synctest bubble
		synctest.Wait()
		stop()
		time.Sleep(5 * limits.Heartbeat) // in a synctest bubble
		synctest.Wait()
		if len(heard) != 3 || heard[0].Type != record.EventHeartbeat || heard[0].Phase != record.PhaseVerify || heard[0].Stage != "main" {
			t.Errorf("heard %+v, want three heartbeats of the phase", heard)
		}
	})
}
