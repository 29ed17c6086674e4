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

// PatienceVariable is an environment variable with the factor that Patience
// uses instead of the load average, such as 4 in a container on a busy machine.
const PatienceVariable = "BERTH_KIT_PATIENCE"

// Patience scales a timeout for a busy machine. d is the timeout on an idle one.
// If the load average is above the number of processors, the result grows with
// it, up to twenty times d. A positive number in PatienceVariable, up to twenty,
// is used as the factor whatever the load.
func Patience(d time.Duration) time.Duration {
	if factor, err := strconv.ParseFloat(os.Getenv(PatienceVariable), 64); err == nil && factor > 0 {
		return time.Duration(float64(d) * min(factor, mostPatience))
	}
	return loaded(d)
}

// Delay scales a wait that a plugin needs on an idle machine for a busy one, as
// Patience does. A factor in PatienceVariable does not make it shorter.
func Delay(d time.Duration) time.Duration { return max(loaded(d), Patience(d)) }

func loaded(d time.Duration) time.Duration {
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
