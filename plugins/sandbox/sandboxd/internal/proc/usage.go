package proc

import (
	"os"
	"strconv"
	"strings"
)

// Cgroup reads a number of our control group. It takes the first of these
// files, of cgroup version 2 or 1, that exists. It returns 0 if there is no
// number or no limit.
func Cgroup(names ...string) int64 {
	for _, n := range names {
		b, err := os.ReadFile("/sys/fs/cgroup/" + n)
		if err != nil {
			continue
		}
		v, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil || v >= 1<<60 { // "max", or the number that version 1 has for it
			return 0
		}
		return v
	}
	return 0
}

// Count returns how many entries a folder of /proc has, or 0 if it cannot be
// read.
func Count(dir string) int64 {
	f, err := os.Open(dir)
	if err != nil {
		return 0
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	return int64(len(names))
}
