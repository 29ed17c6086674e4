package trial_test

import (
	"testing"

	"github.com/berth-eval/berth/core/record"
)

func TestStraightPath(t *testing.T) {
	t.Parallel()
	b := newBench(t, does("echo hello > /app/hello.txt"), tests(`[ "$(cat /app/hello.txt)" = hello ]`))
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
}
