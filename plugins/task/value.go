package task

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Env are environment variables (or headers) by name.
type Env map[string]Value

// Value is a literal, or the name of a variable of the host. What the host's variable
// holds may be a secret and is never kept here.
type Value struct {
	// Text is the literal; empty when Host is set.
	Text string `json:"text,omitempty"`
	// Host is the name of a host variable.
	Host string `json:"host,omitempty"`
	// Default stands in when the host variable is not set or empty; nil means none.
	Default *string `json:"default,omitempty"`
}

// Text makes the literal environment of a plain map.
func Text(m map[string]string) Env {
	if m == nil {
		return nil
	}
	e := make(Env, len(m))
	for k, v := range m {
		e[k] = Value{Text: v}
	}
	return e
}

// Resolve returns plain variables. lookup is asked for host variables and says
// whether they are set; a variable that is neither set nor has a default is an
// error that names it.
func (e Env) Resolve(lookup func(string) (string, bool)) (map[string]string, error) {
	out := make(map[string]string, len(e))
	for _, k := range slices.Sorted(maps.Keys(e)) {
		v := e[k]
		if v.Host == "" {
			out[k] = v.Text
			continue
		}
		s, ok := lookup(v.Host)
		switch {
		case ok && (s != "" || v.Default == nil):
			out[k] = s
		case v.Default != nil:
			out[k] = *v.Default
		default:
			return nil, fmt.Errorf("%s: host variable %s is not set: set it, or give the task a default", k, v.Host)
		}
	}
	return out, nil
}

// HostVars returns the names of the host variables that e asks for, sorted.
func (e Env) HostVars() []string {
	var names []string
	for _, v := range e {
		if v.Host != "" && !slices.Contains(names, v.Host) {
			names = append(names, v.Host)
		}
	}
	slices.Sort(names)
	return names
}

// Duration is a time.Duration that reads and writes as text such as "1m30s".
type Duration time.Duration

// Seconds makes a Duration of a number of seconds.
func Seconds(s float64) Duration { return Duration(s * float64(time.Second)) }

// Std returns d as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns d as time.Duration does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes d as String does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("duration is %q: write one such as \"90s\" or \"2m\"", b)
	}
	*d = Duration(v)
	return nil
}
