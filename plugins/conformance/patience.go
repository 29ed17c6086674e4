package conformance

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// mostPatience is how many times as long a clause may take on a busy machine.
const mostPatience = 20

// Patience is how long to wait on this machine for what takes d at most on one
// that has nothing else to do. It is longer as far as more programs want to run
// than there are processors, which Linux tells, and twenty times d at most.
func Patience(d time.Duration) time.Duration {
	text, _ := os.ReadFile("/proc/loadavg") // elsewhere nobody says
	return patience(d, string(text), runtime.NumCPU())
}

func patience(d time.Duration, loadavg string, processors int) time.Duration {
	last, _, _ := strings.Cut(loadavg, " ") // minute
	load, err := strconv.ParseFloat(last, 64)
	if err != nil || !(load > float64(processors)) {
		return d
	}
	return time.Duration(float64(d) * min(load/float64(processors), mostPatience))
}
