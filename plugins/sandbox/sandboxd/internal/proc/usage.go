package proc

import (
	"os"
	"strconv"
	"strings"
)

// Cgroup reads a number of our control group from the first of these files, of
// version 2 or 1, that the backend shows. No number, and no limit, are 0.
func Cgroup(names ...string) int64 {
	for _, n := range names {
		b, err := os.ReadFile("/sys/fs/cgroup/" + n)
		if err != nil {
			continue
		}
		v, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil || v >= 1<<60 { // "max", or the word of version 1 for it
			return 0
		}
		return v
	}
	return 0
}

// Count is how many entries a folder of /proc has; 0 where it cannot be read.
func Count(dir string) int64 {
	f, err := os.Open(dir)
	if err != nil {
		return 0
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	return int64(len(names))
}
