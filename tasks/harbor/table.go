package harbor

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/suggest"
	"github.com/berth-eval/berth/plugins/task"
)

// reader collects the problems of one file while its values are taken out.
type reader struct {
	file     string
	doc      *document
	lenient  bool
	problems []task.Problem
}

// report adds a problem at the position of a path.
func (r *reader) report(sev task.Severity, path, summary, format string, args ...any) {
	at := r.doc.position(path)
	r.problems = append(r.problems, task.Problem{
		File: r.file, Line: at.line, Column: at.column, Key: path, Severity: sev,
		Summary: summary, Detail: fmt.Sprintf(format, args...),
	})
}

func (r *reader) bad(path, summary, format string, args ...any) {
	r.report(task.Error, path, summary, format, args...)
}

func (r *reader) warn(path, summary, format string, args ...any) {
	r.report(task.Warning, path, summary, format, args...)
}

// table hands out the values of one TOML table. Each key that is asked for is
// known; done reports the others.
type table struct {
	r     *reader
	path  string
	m     map[string]any
	known []string
}

func (r *reader) root() *table { return &table{r: r, m: r.doc.root} }

func (t *table) at(key string) string { return join(t.path, key) }

func (t *table) get(key string) (any, bool) {
	t.known = append(t.known, key)
	v, ok := t.m[key]
	return v, ok
}

// has says whether the table was written at all.
func (t *table) has() bool { return t.m != nil }

// done reports the keys that were never read.
func (t *table) done() {
	sev, more := task.Error, ""
	if t.r.lenient {
		sev, more = task.Warning, " It is ignored."
	}
	for _, key := range slices.Sorted(maps.Keys(t.m)) {
		if slices.Contains(t.known, key) {
			continue
		}
		what := "Unknown key"
		switch t.m[key].(type) {
		case map[string]any, []map[string]any:
			what = "Unknown table"
		}
		hint := suggestElsewhere(key)
		if best := suggest.Word(key, t.known); best != "" {
			hint = fmt.Sprintf("Did you mean %q?", best)
		}
		if hint == "" {
			hint = "Known here: " + strings.Join(slices.Sorted(slices.Values(t.known)), ", ") + "."
		}
		t.r.report(sev, t.at(key), what, "%q is not known here. %s%s", key, hint, more)
	}
}

// homes are the tables of keys that are often written in a wrong one.
var homes = map[string]string{
	"timeout_sec": "[agent] or [verifier]", "user": "[agent] or [verifier]", "env": "[environment], [verifier] or [solution]",
	"docker_image": "[environment]", "cpus": "[environment]", "memory_mb": "[environment]", "storage_mb": "[environment]",
	"gpus": "[environment]", "workdir": "[environment]", "build_timeout_sec": "[environment]", "allow_internet": "[environment]",
	"network_mode": "[environment], [agent] or [verifier]", "allowed_hosts": "[environment], [agent] or [verifier]",
	"healthcheck": "[environment] or [[steps]]", "mcp_servers": "[environment]", "skills_dir": "[environment]",
	"collect": "[verifier]", "environment_mode": "[verifier]", "min_reward": "[[steps]]",
	"multi_step_reward_strategy": "the top of the file", "artifacts": "the top of the file or [[steps]]",
	"name": "[task]", "description": "[task]", "authors": "[task]", "keywords": "[task]",
	"difficulty": "[metadata]", "category": "[metadata]", "tags": "[metadata]", "author_name": "[metadata]", "author_email": "[metadata]",
}

func suggestElsewhere(key string) string {
	if home, ok := homes[key]; ok {
		return fmt.Sprintf("It belongs in %s.", home)
	}
	return ""
}

func (t *table) wrong(key, want string, v any) {
	t.r.bad(t.at(key), "Wrong type", "%s must be %s, got %s.", t.at(key), want, show(v))
}

// coerced warns of a value that is taken although it has another type.
func (t *table) coerced(key, want string, v any) {
	t.r.warn(t.at(key), "Value of another type", "%s is %s, taken as %s.", t.at(key), show(v), want)
}

// show writes a TOML value as its author knows it.
func show(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("the text %q", v)
	case map[string]any:
		return "a table"
	case []any:
		return "a list"
	case int64, float64, bool:
		return fmt.Sprintf("%v", v)
	default:
		return fmt.Sprintf("a %T", v)
	}
}

// str returns a text, or def when the key is absent.
func (t *table) str(key, def string) string {
	v, ok := t.get(key)
	if !ok {
		return def
	}
	s, ok := v.(string)
	if !ok {
		t.wrong(key, "a text", v)
		return def
	}
	return s
}

// optional returns a text, and whether the key is there.
func (t *table) optional(key string) (string, bool) {
	_, ok := t.m[key]
	return t.str(key, ""), ok
}

// word returns one of the words allowed, in lower case when fold is set.
func (t *table) word(key, def string, fold bool, allowed ...string) string {
	s, ok := t.optional(key)
	if !ok {
		return def
	}
	if fold {
		s = strings.ToLower(s)
	}
	if slices.Contains(allowed, s) {
		return s
	}
	if _, isText := t.m[key].(string); isText {
		t.r.bad(t.at(key), "Unknown value", "%s is %q.%s It must be one of %s.", t.at(key), s, meant(s, allowed), strings.Join(allowed, ", "))
	}
	return def
}

// meant is the allowed word that is near to s, as a sentence, or nothing.
func meant(s string, allowed []string) string {
	if best := suggest.Word(s, allowed); best != "" {
		return fmt.Sprintf(" Did you mean %q?", best)
	}
	return ""
}

// float returns a finite number and whether there is one.
func (t *table) float(key string) (float64, bool) {
	v, ok := t.get(key)
	if !ok {
		return 0, false
	}
	f, exact, ok := toFloat(v)
	switch {
	case !ok:
		t.wrong(key, "a number", v)
	case math.IsNaN(f) || math.IsInf(f, 0):
		t.r.bad(t.at(key), "Number is not finite", "%s is %v.", t.at(key), f)
		ok = false
	case !exact:
		t.coerced(key, fmt.Sprintf("the number %v", f), v)
	}
	return f, ok
}

// toFloat says whether v is a number, and whether it was written as one.
func toFloat(v any) (f float64, exact, ok bool) {
	switch v := v.(type) {
	case float64:
		return v, true, true
	case int64:
		return float64(v), true, true
	case bool:
		if v {
			return 1, false, true
		}
		return 0, false, true
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return f, false, err == nil
	default:
		return 0, false, false
	}
}

// integer returns a whole number and whether there is one.
func (t *table) integer(key string) (int64, bool) {
	f, ok := t.float(key)
	if !ok {
		return 0, false
	}
	if f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		t.wrong(key, "a whole number", t.m[key])
		return 0, false
	}
	return int64(f), true
}

// boolean returns a truth value and whether there is one.
func (t *table) boolean(key string) (value, ok bool) {
	v, ok := t.get(key)
	if !ok {
		return false, false
	}
	if b, isBool := v.(bool); isBool {
		return b, true
	}
	switch strings.ToLower(fmt.Sprint(v)) {
	case "1", "true", "t", "yes", "y", "on":
		value, ok = true, true
	case "0", "false", "f", "no", "n", "off":
		value, ok = false, true
	default:
		t.wrong(key, "true or false", v)
		return false, false
	}
	t.coerced(key, fmt.Sprint(value), v)
	return value, ok
}

// seconds returns a time. Absent is def; zero is taken as absent.
func (t *table) seconds(key string, def task.Duration) task.Duration {
	f, ok := t.float(key)
	switch {
	case !ok:
		return def
	case f < 0 || f > math.MaxInt64/1e10:
		t.r.bad(t.at(key), "Time out of range", "%s is %v seconds.", t.at(key), f)
		return def
	case f == 0:
		t.r.warn(t.at(key), "Time of zero", "%s is 0, taken as if it were not written.", t.at(key))
		return def
	}
	return task.Seconds(f)
}

// strings returns a list of texts; nil when the key is absent or the list empty.
func (t *table) strings(key string) []string {
	v, ok := t.get(key)
	if !ok {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		t.wrong(key, "a list of texts", v)
		return nil
	}
	var out []string
	for i, e := range list {
		s, ok := e.(string)
		if !ok {
			t.r.bad(index(t.at(key), i), "Wrong type", "%s must be a text, got %s.", index(t.at(key), i), show(e))
			continue
		}
		out = append(out, s)
	}
	return out
}

// table returns a table below; one without values when the key is absent.
func (t *table) table(key string) *table {
	sub := &table{r: t.r, path: t.at(key)}
	v, ok := t.get(key)
	if !ok {
		return sub
	}
	m, ok := v.(map[string]any)
	if !ok {
		t.wrong(key, "a table", v)
		return sub
	}
	sub.m = m
	return sub
}

// tables returns the elements of a list of tables.
func (t *table) tables(key string) []*table {
	v, ok := t.get(key)
	if !ok {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		t.wrong(key, "a list of tables", v)
		return nil
	}
	var out []*table
	for i, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			t.r.bad(index(t.at(key), i), "Wrong type", "%s must be a table, got %s.", index(t.at(key), i), show(e))
			continue
		}
		out = append(out, &table{r: t.r, path: index(t.at(key), i), m: m})
	}
	return out
}
