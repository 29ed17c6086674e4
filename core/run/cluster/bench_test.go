package cluster_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

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
	for i := 0; b.Loop(); i++ {
		if mine, err := c.Claim(strconv.Itoa(i)); err != nil || !mine {
			b.Fatal(mine, err)
		}
	}
}
