package harbor

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/berth-eval/berth/plugins/task"
)

// config is task.toml: what was written, checked, with the format's defaults.
type config struct {
	schema      string
	strategy    string // "mean", "final" or empty
	artifacts   []task.Artifact
	name        string // of [task], or empty
	version     string
	description string
	authors     []string
	keywords    []string
	metadata    json.RawMessage
	labels      task.Labels
	agent       phaseConfig
	verifier    verifierConfig
	solutionEnv task.Env
	env         environmentConfig
	steps       []stepConfig
	berth       berthConfig
}

// phaseConfig is what [agent] and [verifier] share.
type phaseConfig struct {
	time    task.Duration // 0: not written
	user    string
	network *task.Network // nil: not written
}

type verifierConfig struct {
	phaseConfig
	env     task.Env
	mode    string // "shared", "separate" or empty
	collect []task.Command
	own     *environmentConfig // [verifier.environment]; nil: not written
}

type stepConfig struct {
	path        string // in the file
	name        string
	agent       phaseConfig
	verifier    verifierConfig
	minScores   map[string]float64
	healthcheck *task.Healthcheck
	artifacts   []task.Artifact
}

type environmentConfig struct {
	image       string
	os          string
	workdir     string
	skillsDir   string
	env         task.Env
	limits      task.Limits
	network     task.Network
	start       task.Duration
	startKey    string
	healthcheck *task.Healthcheck
	servers     []task.MCPServer
}

const (
	defaultVerifyTime = task.Duration(600 * time.Second)
	defaultStartTime  = task.Duration(600 * time.Second)
	defaultHookTime   = task.Duration(60 * time.Second)
)

// schemas are the versions of the format that this reader knows.
var schemas = []string{"1.0", "1.1", "1.2", "1.3", "1.4"}

var taskName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$`)

// decoder turns the tables of task.toml into a config.
type decoder struct {
	*reader
	options task.Options
}

func (d *decoder) config() *config {
	c := &config{}
	t := d.root()
	c.schema = d.schema(t)
	t.str("source", "") // origin of a copied task; not used
	c.strategy = t.word("multi_step_reward_strategy", "", false, "mean", "final")
	c.artifacts = d.artifacts(t)
	d.identity(t.table("task"), c)
	c.metadata = d.metadata(t.table("metadata"))
	c.berth = d.berth(t.table("metadata").table("berth"))
	c.labels = d.labels(t.table("metadata"), c.keywords)
	agent := t.table("agent")
	c.agent = d.phase(agent, 0)
	agent.done()
	c.verifier = d.verifier(t.table("verifier"))
	solution := t.table("solution")
	c.solutionEnv = d.env(solution, "env")
	solution.done()
	c.env = d.environment(t.table("environment"), true)
	c.steps = d.steps(t)
	t.done()
	if c.strategy != "" && len(c.steps) == 0 {
		d.warn("multi_step_reward_strategy", "Setting without effect", "The task has no [[steps]].")
	}
	return c
}

func (d *decoder) schema(t *table) string {
	current, hasCurrent := t.optional("schema_version")
	old, hasOld := t.optional("version")
	if hasCurrent && hasOld {
		d.warn("version", "Setting without effect", "schema_version says the same, and wins.")
	}
	if !hasCurrent {
		current = old
	}
	if (hasCurrent || hasOld) && !slices.Contains(schemas, current) {
		d.warn(map[bool]string{true: "schema_version", false: "version"}[hasCurrent], "Unknown schema version",
			"%q is not one of %s. The file is read as %s.", current, strings.Join(schemas, ", "), schemas[len(schemas)-1])
	}
	return current
}

func (d *decoder) identity(t *table, c *config) {
	name, ok := t.optional("name")
	switch {
	case ok && (!taskName.MatchString(name) || strings.Contains(name, "..")):
		d.bad(t.at("name"), "Malformed task name", "%q must be org/name, of letters, digits, \".\", \"_\" and \"-\".", name)
	case !ok && t.has():
		d.bad(t.path, "Task name is missing", "Write name = \"org/name\" in [task], or leave the table out.")
	}
	c.name = name
	if v, ok := t.optional("version"); ok && v == "" {
		d.bad(t.at("version"), "Empty version", "Write one such as \"1.0.0\", or leave it out.")
	} else {
		c.version = v
	}
	c.description = t.str("description", "")
	c.keywords = t.strings("keywords")
	c.authors = d.authors(t)
	t.done()
}

// authors takes tables of name and email.
func (d *decoder) authors(t *table) []string {
	v, ok := t.get("authors")
	if !ok {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		t.wrong("authors", "a list", v)
		return nil
	}
	var out []string
	for i, e := range list {
		path := index(t.at("authors"), i)
		switch e := e.(type) {
		case map[string]any:
			a := &table{r: d.reader, path: path, m: e}
			name, email := d.required(a, "name"), a.str("email", "")
			a.done()
			if email != "" {
				name = strings.TrimSpace(name + " <" + email + ">")
			}
			out = append(out, name)
		default:
			d.bad(path, "Wrong type", "%s must be a table of name and email, got %s.", path, show(e))
		}
	}
	return out
}

// metadata keeps the author's own data as JSON, unread.
func (d *decoder) metadata(t *table) json.RawMessage {
	if !t.has() {
		return nil
	}
	raw, err := json.Marshal(t.m)
	if err != nil {
		d.bad(t.path, "Metadata cannot be kept", "It has a value that JSON cannot say: %v.", err)
		return nil
	}
	return raw
}

// Bounds of labels, which are stored with every trial.
const (
	maxTags  = 50
	maxLabel = 200 // bytes
)

// labels reads what tables of results can be grouped by. Everything in metadata is
// the author's own, so a value of another type is not a mistake: it is not a label.
func (d *decoder) labels(t *table, keywords []string) (l task.Labels) {
	label := func(key string, v any) string {
		text := ""
		switch v := v.(type) {
		case string:
			text = strings.TrimSpace(v)
		case int64, float64:
			text = fmt.Sprint(v)
		}
		if len(text) > maxLabel || strings.ContainsFunc(text, unicode.IsControl) {
			d.warn(t.at(key), "Not used as a label", "Tables of results are not grouped by it: it has more than %d bytes, or control characters.", maxLabel)
			return ""
		}
		return text
	}
	l.Category, l.Difficulty = label("category", t.m["category"]), label("difficulty", t.m["difficulty"])
	tags := []any{}
	if list, ok := t.m["tags"].([]any); ok {
		tags = append(tags, list...)
	}
	for _, k := range keywords {
		tags = append(tags, k)
	}
	for i, v := range tags {
		if i == maxTags {
			d.warn(t.at("tags"), "Too many tags", "Tables of results are grouped by the first %d.", maxTags)
			break
		}
		if tag := label("tags", v); tag != "" && !slices.Contains(l.Tags, tag) {
			l.Tags = append(l.Tags, tag)
		}
	}
	return l
}

func (d *decoder) phase(t *table, def task.Duration) phaseConfig {
	return phaseConfig{time: t.seconds("timeout_sec", def), user: d.user(t), network: d.network(t, "")}
}

// user takes a name or a number.
func (d *decoder) user(t *table) string {
	v, ok := t.get("user")
	if !ok {
		return ""
	}
	switch v := v.(type) {
	case string:
		if v == "" || strings.ContainsAny(v, ":\x00\n") {
			d.bad(t.at("user"), "Malformed user", "%q is neither a user name nor a number.", v)
			return ""
		}
		return v
	case int64:
		if v < 0 || v > 1<<32-2 {
			d.bad(t.at("user"), "User out of range", "%d is not the number of a user.", v)
			return ""
		}
		return strconv.FormatInt(v, 10)
	default:
		t.wrong("user", "a name or a number", v)
		return ""
	}
}

func (d *decoder) verifier(t *table) verifierConfig {
	v := verifierConfig{phaseConfig: d.phase(t, 0), env: d.env(t, "env")}
	v.mode = t.word("environment_mode", "", false, "shared", "separate")
	for _, h := range t.tables("collect") {
		v.collect = append(v.collect, d.hook(h))
	}
	if own := t.table("environment"); own.has() {
		e := d.environment(own, false)
		v.own = &e
	}
	if v.mode == "shared" && v.own != nil {
		d.bad(t.at("environment_mode"), "Contradiction", "A shared verifier has no environment of its own: remove %s, or write \"separate\".",
			t.at("environment"))
	}
	t.done()
	return v
}

func (d *decoder) hook(t *table) task.Command {
	c := task.Command{Service: service(t.str("service", "")), User: d.user(t), Time: t.seconds("timeout_sec", defaultHookTime), TimeKey: t.at("timeout_sec")}
	if line := d.required(t, "command"); line != "" {
		c.Argv = shell(line)
	}
	t.done()
	return c
}

// required returns a text that must be there and not be empty.
func (d *decoder) required(t *table, key string) string {
	s, ok := t.optional(key)
	if _, isText := t.m[key].(string); !ok || (isText && s == "") {
		d.bad(t.at(key), "Setting is missing", "%s must have %q.", t.path, key)
	}
	return s
}

// service returns the name of a sidecar in the form of plugins/task.
func service(name string) string {
	if name = strings.TrimSpace(name); name != mainService {
		return name
	}
	return ""
}

func (d *decoder) steps(t *table) []stepConfig {
	var steps []stepConfig
	for _, s := range t.tables("steps") {
		step := stepConfig{path: s.path, name: d.required(s, "name")}
		agent := s.table("agent")
		step.agent = d.phase(agent, 0)
		agent.done()
		step.verifier = d.verifier(s.table("verifier"))
		step.minScores = d.minScores(s)
		step.healthcheck = d.healthcheck(s.table("healthcheck"))
		step.artifacts = d.artifacts(s)
		s.done()
		if step.name != "" {
			d.stepName(s, step.name, steps)
		}
		steps = append(steps, step)
	}
	return steps
}

func (d *decoder) minScores(t *table) map[string]float64 {
	v, ok := t.m["min_reward"]
	if !ok {
		t.known = append(t.known, "min_reward")
		return nil
	}
	if _, isTable := v.(map[string]any); !isTable {
		f, ok := t.float("min_reward")
		if !ok {
			return nil
		}
		return map[string]float64{rewardKey: f}
	}
	m := t.table("min_reward")
	if len(m.m) == 0 {
		return nil
	}
	out := make(map[string]float64, len(m.m))
	for key := range m.m {
		if f, ok := m.float(key); ok {
			out[key] = f
		}
	}
	return out
}

func (d *decoder) healthcheck(t *table) *task.Healthcheck {
	if !t.has() {
		return nil
	}
	line := d.required(t, "command")
	h := &task.Healthcheck{
		Argv:          shell(line),
		Interval:      t.seconds("interval_sec", task.Duration(5*time.Second)),
		Timeout:       t.seconds("timeout_sec", task.Duration(30*time.Second)),
		TimeKey:       t.at("timeout_sec"),
		StartPeriod:   t.seconds("start_period_sec", 0),
		StartInterval: t.seconds("start_interval_sec", task.Duration(5*time.Second)),
		Retries:       3,
	}
	if n, ok := t.integer("retries"); ok {
		if n < 0 || n > 10_000 {
			d.bad(t.at("retries"), "Number out of range", "%d is not between 0 and 10000.", n)
		}
		h.Retries = int(n)
	}
	t.done()
	return h
}

// shell returns the argv that runs a command line as the format's own tool
// does: with bash, or with sh if there is no bash.
func shell(line string) []string {
	return []string{"sh", "-c", `command -v bash >/dev/null 2>&1 && exec bash -c "$1"; exec sh -c "$1"`, "sh", line}
}
