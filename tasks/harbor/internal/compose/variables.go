package compose

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/template"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/goccy/go-yaml/token"

	"github.com/berth-eval/berth/plugins/task"
)

// Variables are those that a compose file may name.
type Variables struct {
	// Given have values that are not secrets. The file may name them anywhere.
	Given map[string]string
	// Allowed says whether the value of a host variable may replace a default of
	// the file. Nil: none.
	Allowed func(name string) bool
}

func (v *Variables) allowed(name string) bool { return v.Allowed != nil && v.Allowed(name) }

// The values of host variables are not known, and may be secrets. While the
// library reads the file, marks stand for them: a name, or a name and its
// default.
const (
	markBegin = '\uf8f0'
	markText  = '\uf8f1' // begins the default
	markEnd   = '\uf8f2'
)

var (
	marks    = regexp.MustCompile(`\x{f8f0}([A-Za-z_][A-Za-z0-9_]*)(\x{f8f1}[^\x{f8f0}-\x{f8f2}]*)?\x{f8f2}`)
	operated = regexp.MustCompile(`(?s)^\$\{([A-Za-z_][A-Za-z0-9_]*)(:?[-+?])(.*)\}$`)
)

// isEnvironment says whether a file may name host variables there
// without a default: as a variable of a container, which is set when a trial
// begins.
func isEnvironment(form string) bool { return strings.HasPrefix(form, "services.*.environment") }

// names checks the variables that a text names.
func (k *keys) names(path, form string, p *token.Position, s string) {
	if !strings.Contains(s, "$") {
		return
	}
	names := map[string]bool{}
	err := collect(names, s)
	if err != nil && len(names) == 0 {
		k.add(task.Error, p, path, "Malformed variable", fmt.Sprintf("%q: %s. A dollar sign alone is written $$.", s, firstLine(err.Error())))
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if _, given := k.variables.Given[name]; given {
			continue
		}
		has := func(operator string) bool { return strings.Contains(s, "${"+name+operator) }
		switch {
		case has(":-") || has("-"):
			if !isEnvironment(form) || !k.variables.allowed(name) {
				k.add(task.Warning, p, path, "Default is used", k.why(form, name))
			}
		case !isEnvironment(form) || has(":+") || has("+"):
			k.add(task.Error, p, path, "Variable of the host", fmt.Sprintf("%q asks for %s of this host. Only values under environment can be taken from it. "+
				"Write the value, or a default as ${%s:-value}; a dollar sign that the container is to see is written $$.", s, name, name))
		}
	}
}

// collect collects the names of the variables in a text, also those in defaults.
func collect(names map[string]bool, s string) error {
	note := func(name string) (string, bool) { names[name] = true; return "", false }
	_, err := template.SubstituteWithOptions(s, note, template.WithoutLogging,
		template.WithReplacementFunction(func(found string, mapping template.Mapping, c *template.Config) (string, error) {
			end := closing(found)
			first, rest := found[:end], found[end:]
			err := collect(names, rest)
			if m := operated.FindStringSubmatch(first); m != nil {
				names[m[1]] = true
				return "", errors.Join(err, collect(names, m[3]))
			}
			_, wrong := template.DefaultReplacementFunc(first, mapping, c)
			return "", errors.Join(err, wrong)
		}))
	return err
}

// why says why a host variable does not replace a default.
func (k *keys) why(form, name string) string {
	if isEnvironment(form) {
		return fmt.Sprintf("%s of the host is not let through. Allow it with --allow-env %s.", name, name)
	}
	return fmt.Sprintf("%s of the host is not let through. Only values under environment can be taken from it.", name)
}

// substitute replaces the variables of a text: those that are given by their
// values, and host variables by marks or by their defaults.
func (v *Variables) substitute(text string, _ template.Mapping) (string, error) {
	return template.SubstituteWithOptions(text, v.mark, template.WithoutLogging, template.WithReplacementFunction(v.replace))
}

func (v *Variables) mark(name string) (string, bool) {
	if value, ok := v.Given[name]; ok {
		return value, true
	}
	return string(markBegin) + name + string(markEnd), true
}

// replace replaces the first variable of a text, which begins with it, and what
// follows it.
func (v *Variables) replace(found string, mapping template.Mapping, c *template.Config) (string, error) {
	end := closing(found)
	first, rest := found[:end], found[end:]
	m := operated.FindStringSubmatch(first)
	name, operator, text := "", "", ""
	if m != nil {
		name, operator, text = m[1], m[2], m[3]
	}
	_, given := v.Given[name]
	var value string
	var err error
	switch {
	case m == nil || given || strings.HasSuffix(operator, "?"):
		value, err = template.DefaultReplacementFunc(first, mapping, c)
	case strings.HasSuffix(operator, "+"): // of a variable that is not set
	case v.allowed(name) && !strings.Contains(text, "$"):
		value = string(markBegin) + name + string(markText) + text + string(markEnd)
	default:
		value, err = v.substitute(text, mapping)
	}
	if err != nil || rest == "" {
		return value, err
	}
	rest, err = v.substitute(rest, mapping)
	return value + rest, err
}

// closing is where the braces that a text begins with are closed; its length if
// it begins with none.
func closing(s string) int {
	open := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

// env are the variables of a container. One without a value is taken from the
// host.
func env(m types.MappingWithEquals) task.Env {
	if len(m) == 0 {
		return nil
	}
	out := task.Env{}
	for name, v := range m {
		if v == nil {
			out[name] = task.Value{Host: name}
		} else {
			out[name] = value(*v)
		}
	}
	return out
}

// value is a text with its marks replaced.
func value(text string) task.Value {
	var parts []task.Value
	for text != "" {
		at := marks.FindStringSubmatchIndex(text)
		if at == nil {
			parts = append(parts, task.Value{Text: text})
			break
		}
		if at[0] > 0 {
			parts = append(parts, task.Value{Text: text[:at[0]]})
		}
		v := task.Value{Host: text[at[2]:at[3]]}
		if at[4] >= 0 {
			v.Default = new(strings.TrimPrefix(text[at[4]:at[5]], string(markText)))
		}
		parts, text = append(parts, v), text[at[1]:]
	}
	switch len(parts) {
	case 0:
		return task.Value{}
	case 1:
		return parts[0]
	default:
		return task.Value{Parts: parts}
	}
}
