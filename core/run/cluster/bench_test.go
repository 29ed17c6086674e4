package cluster_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/run/cluster"
)

// The claim of a free attempt on a local disk.
func BenchmarkClaim(b *testing.B) {
	dir := b.TempDir()
	for _, sub := range []string{"leases", "pilots"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	c := cluster.NewTestClaimer(dir, filepath.Join(dir, "pilots", "me"), "me")
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		if mine, err := c.Claim(strconv.Itoa(i)); err != nil || !mine {
			b.Fatal(mine, err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
}
