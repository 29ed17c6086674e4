package dialect

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// longestWait is more than any provider asks for in earnest.
const longestWait = 366 * 24 * time.Hour

// RetryAfter returns how long a provider that limits requests asks to wait, by the
// headers of its answer; 0: it does not say.
func RetryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	seconds, err := strconv.ParseFloat(text, 64)
	if ms, exact := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); exact == nil {
		seconds, err = ms/1000, nil
	}
	if err != nil {
		at, wrong := http.ParseTime(text)
		if wrong != nil {
			return 0
		}
		seconds = time.Until(at).Seconds()
	}
	if !(seconds > 0) { // also what is not a number
		return 0
	}
	return time.Duration(min(seconds, longestWait.Seconds()) * float64(time.Second))
}

// Roughly returns an approximate duration for messages.
func Roughly(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%d d %d h", d/day, d%day/time.Hour)
	case d >= 90*time.Minute:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	case d >= 90*time.Second:
		return fmt.Sprintf("%d min", int(d.Round(time.Minute).Minutes()))
	default:
		return fmt.Sprintf("%d s", max(1, int(d.Round(time.Second).Seconds())))
	}
}
