package remains

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/environment"
)

func TestUsageIsRead(t *testing.T) {
	dir := t.TempDir()
	if got := Group(dir); !reflect.DeepEqual(got, environment.Remains{}) {
		t.Errorf("without files: %+v", got)
	}
	for file, text := range map[string]string{
		"cpu.stat": "usage_usec 2500\nuser_usec 1\nthrottled_usec 7\n", "memory.events": "low 0\noom 3\noom_kill 2\n", "memory.peak": "1048577\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := environment.Remains{CPU: 2500 * time.Microsecond, Throttled: 7 * time.Microsecond, PeakMemoryMiB: 2, OOMKills: 2}
	if got := Group(dir); !reflect.DeepEqual(got, want) {
		t.Errorf("usage %+v, want %+v", got, want)
	}
}
