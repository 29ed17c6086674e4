package audit_test

import (
	"bytes"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/audit"
	"github.com/berth-eval/berth/cmd/berth/internal/runtest"
)

// Whatever stands in one file of a run, the audit ends, and it does not call a
// folder sound in which a file was changed.
func FuzzRunFolder(f *testing.F) {
	dir := forged(f, nil, "1", request)
	runtest.Fuzz(f, dir, func(t *testing.T, file string, before, now []byte) {
		got, err := audit.Run(dir, nil)
		if err == nil && got.Problems == 0 && !bytes.Equal(before, now) {
			t.Errorf("%s was changed, and nothing is wrong: %q", file, now)
		}
	})
}
