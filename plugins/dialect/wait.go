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
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if ms, err := strconv.ParseFloat(strings.TrimSpace(h.Get(name)), 64); err == nil && ms > 0 {
			return bounded(ms / 1000)
		}
	}
	if d := waitOf(h.Get("Retry-After")); d > 0 {
		return d
	}
	return untilReset(h)
}

// untilReset returns when the first limit is over of those that are used up or,
// if no header says which they are, of all.
func untilReset(h http.Header) time.Duration {
	var used, least time.Duration
	for name := range h {
		if !strings.Contains(name, "Ratelimit") || !strings.Contains(name, "Reset") {
			continue
		}
		d := waitOf(h.Get(name))
		if d <= 0 {
			continue
		}
		if least == 0 || d < least {
			least = d
		}
		if strings.TrimSpace(h.Get(strings.Replace(name, "Reset", "Remaining", 1))) == "0" {
			used = max(used, d) // all of these have to be over
		}
	}
	if used > 0 {
		return used
	}
	return least
}

// waitOf reads a wait: seconds, a duration such as 6m0s, a date, or seconds or
// milliseconds since 1970.
func waitOf(text string) time.Duration {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		switch {
		case n > 1e11:
			return bounded(time.Until(time.UnixMilli(int64(min(n, 1e15)))).Seconds())
		case n > 1e9:
			return bounded(time.Until(time.Unix(int64(n), 0)).Seconds())
		}
		return bounded(n)
	}
	if d, err := time.ParseDuration(text); err == nil {
		return bounded(d.Seconds())
	}
	at, err := http.ParseTime(text)
	if err != nil {
		at, err = time.Parse(time.RFC3339, text)
	}
	if err != nil {
		return 0
	}
	return bounded(time.Until(at).Seconds())
}

func bounded(seconds float64) time.Duration {
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
