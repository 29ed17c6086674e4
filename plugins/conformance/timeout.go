package conformance

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// mostPatience is the largest factor by which a busy machine extends a timeout.
const mostPatience = 20

// Patience scales a timeout for a busy machine. d is the timeout on an idle one.
// If the load average is above the number of processors, the result grows with
// it, up to twenty times d.
func Patience(d time.Duration) time.Duration {
	text, _ := os.ReadFile("/proc/loadavg") // Linux only
	return patience(d, string(text), runtime.NumCPU())
}

func patience(d time.Duration, loadavg string, processors int) time.Duration {
	last, _, _ := strings.Cut(loadavg, " ") // over the last minute
	load, err := strconv.ParseFloat(last, 64)
	if err != nil || !(load > float64(processors)) {
		return d
	}
	return time.Duration(float64(d) * min(load/float64(processors), mostPatience))
}
