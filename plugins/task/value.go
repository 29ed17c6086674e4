package task

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Env are environment variables (or headers) by name.
type Env map[string]Value

// Value is a literal, or the name of a host variable. The value of a host
// variable may be a secret and is never stored here.
type Value struct {
	// Text is the literal; empty when Host is set.
	Text string `json:"text,omitempty"`
	// Host is the name of a host variable.
	Host string `json:"host,omitempty"`
	// Default is used when the host variable is unset or empty; nil means none.
	Default *string `json:"default,omitempty"`
	// Parts are values to join, such as "Bearer " and a host variable. If Parts
	// is set, no other field is.
	Parts []Value `json:"parts,omitempty"`
}

// resolve returns the text of v.
func (v *Value) resolve(lookup func(string) (string, bool)) (string, error) {
	var joined strings.Builder
	for i := range v.Parts {
		s, err := v.Parts[i].resolve(lookup)
		if err != nil {
			return "", err
		}
		joined.WriteString(s)
	}
	if v.Parts != nil || v.Host == "" {
		return joined.String() + v.Text, nil
	}
	s, ok := lookup(v.Host)
	switch {
	case ok && (s != "" || v.Default == nil):
		return s, nil
	case v.Default != nil:
		return *v.Default, nil
	default:
		return "", fmt.Errorf("host variable %s is not set: set it, or give the task a default", v.Host)
	}
}

// hosts sets the names of the host variables in v, to true if v has no default.
func (v *Value) hosts(names map[string]bool) {
	if v.Host != "" {
		names[v.Host] = names[v.Host] || v.Default == nil
	}
	for i := range v.Parts {
		v.Parts[i].hosts(names)
	}
}

// Text returns an Env with the literal values of m.
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

// Resolve returns plain variables. lookup reads host variables and reports
// whether they are set. A variable that is unset and has no default is an error
// that names it.
func (e Env) Resolve(lookup func(string) (string, bool)) (map[string]string, error) {
	out := make(map[string]string, len(e))
	for _, k := range slices.Sorted(maps.Keys(e)) {
		v := e[k]
		s, err := v.resolve(lookup)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k, err)
		}
		out[k] = s
	}
	return out, nil
}

// HostVars returns the names of the host variables that e asks for, sorted.
func (e Env) HostVars() []string {
	names := map[string]bool{}
	for _, v := range e {
		v.hosts(names)
	}
	return slices.Sorted(maps.Keys(names))
}

// Envs are all variables and headers of t.
func (t *Task) Envs() []Env {
	es := []Env{t.Environment.Env}
	for i := range t.Environment.Sidecars {
		es = append(es, t.Environment.Sidecars[i].Env)
	}
	for i := range t.Services {
		es = append(es, t.Services[i].Command.Env)
	}
	for i := range t.MCPServers {
		es = append(es, t.MCPServers[i].Env, t.MCPServers[i].Headers)
	}
	for i := range t.Stages {
		s := &t.Stages[i]
		es = append(es, s.Agent.Env, s.Verify.Env)
		if s.Reference != nil {
			es = append(es, s.Reference.Env)
		}
		for _, c := range slices.Concat(s.Setup, s.Hooks) {
			es = append(es, c.Env)
		}
	}
	return es
}

// HostVars returns the names of the host variables that t cannot do without,
// sorted: it asks for them and gives no default.
func (t *Task) HostVars() []string {
	names := map[string]bool{}
	for _, e := range t.Envs() {
		for _, v := range e {
			v.hosts(names)
		}
	}
	maps.DeleteFunc(names, func(_ string, needed bool) bool { return !needed })
	return slices.Sorted(maps.Keys(names))
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
