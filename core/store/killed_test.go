package store_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/testlevel"
)

// torn counts the attempts that have a result, and those of them that do not have all
// their files.
func torn(t *testing.T, dir string) (published, torn int) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "shared", "*", record.ResultFile))
	testlevel.Must(t, err)
	for _, result := range all {
		var want store.Checksums
		b, err := os.ReadFile(filepath.Join(filepath.Dir(result), store.ChecksumsFile))
		if err == nil {
			err = json.Unmarshal(b, &want)
		}
		got, failed := store.ChecksumsOf(filepath.Dir(result))
		if err != nil || failed != nil || !maps.Equal(got.Files, want.Files) {
			torn++
		}
	}
	return len(all), torn
}
