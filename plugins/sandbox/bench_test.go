package sandbox_test

import (
	"io"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

// BenchmarkCommand runs one program on the host and in a sandbox, in turns, so
// that noise hits both, and reports the medians.
func BenchmarkCommand(b *testing.B) {
	c := start(b)
	var host, inside []time.Duration
	for b.Loop() {
		begin := time.Now()
		if err := exec.CommandContext(b.Context(), "/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
		host = append(host, time.Since(begin))
		begin = time.Now()
		if r, err := c.Exec(b.Context(), sandbox.Command{Argv: []string{"/bin/true"}}); err != nil || !r.OK() {
			b.Fatal(r, err)
		}
		inside = append(inside, time.Since(begin))
	}
	median := func(d []time.Duration) float64 { slices.Sort(d); return float64(d[len(d)/2].Microseconds()) }
	b.ReportMetric(median(host), "µs-host-p50")
	b.ReportMetric(median(inside), "µs-sandbox-p50")
}

// BenchmarkOutput is how fast a command's output comes.
func BenchmarkOutput(b *testing.B) {
	c := start(b)
	const size = 64 << 20
	b.SetBytes(size)
	for b.Loop() {
		if _, err := c.Exec(b.Context(), sandbox.Command{Argv: []string{"head", "-c", "67108864", "/dev/zero"}, Stdout: io.Discard}); err != nil {
			b.Fatal(err)
		}
	}
}

func start(b *testing.B) *sandbox.Client {
	b.Helper()
	return sandboxtest.Start(b, sandboxtest.Options{}).Shell("bench")
}
