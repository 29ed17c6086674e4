package run

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWhatTheKernelSaysOfMemoryIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for text, want := range map[string]float64{
		"some avg10=12.34 avg60=0.00 avg300=0.00 total=1\nfull avg10=9.00 avg60=0.00 avg300=0.00 total=0\n": 12.34,
		"": 0, "some\n": 0, "full avg10=9.00": 0,
	} {
		if got := pressureOf(file("pressure", text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := pressureOf(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("a kernel without pressure information has %v", got)
	}
	if got := availableIn(file("meminfo", "MemTotal:       24576000 kB\nMemFree:  1 kB\nMemAvailable:   8388608 kB\n")); got != 8<<10 {
		t.Errorf("8 GiB are %d MiB", got)
	}
	if got := availableIn(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("an unknown memory has %d MiB", got)
	}
	if got := freeMemory(); got <= 0 {
		t.Errorf("this machine has %d MiB", got)
	}
}
