package maker

import (
	"testing"

	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/modetest"
)

func TestSandbox(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		r := newRig(t)
		if err := r.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		x := r.open(t, Order{})
		t.Log(x.sh(t, "id; cat /proc/self/uid_map; cat /proc/self/mountinfo; ls -la / /dev /home; cat /proc/1/status | grep -E 'Uid|Cap'"))
	})
}
