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
	"github.com/berth-eval/berth/tasks/internal/document"
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
	*document.Reader
	top     *document.Table
	options task.Options
}

func (d *decoder) config() *config {
	c := &config{}
	t := d.top
	c.schema = d.schema(t)
	t.Text("source", "") // origin of a copied task; not used
	c.strategy = t.Word("multi_step_reward_strategy", "", "mean", "final")
	c.artifacts = d.artifacts(t)
	d.identity(t.Below("task"), c)
	c.metadata = t.Below("metadata").JSON()
	c.berth = d.berth(t.Below("metadata").Below("berth"))
	c.labels = d.labels(t.Below("metadata"), c.keywords)
	c.labels.Expect = c.berth.expect
	agent := t.Below("agent")
	c.agent = d.phase(agent, 0)
	agent.Done()
	c.verifier = d.verifier(t.Below("verifier"))
	solution := t.Below("solution")
	c.solutionEnv = d.env(solution, "env")
	solution.Done()
	c.env = d.environment(t.Below("environment"), true)
	c.steps = d.steps(t)
	t.Done()
	if c.strategy != "" && len(c.steps) == 0 {
		d.Warn("multi_step_reward_strategy", "Setting without effect", "The task has no [[steps]].")
	}
	return c
}

func (d *decoder) schema(t *document.Table) string {
	current, hasCurrent := t.Text("schema_version", ""), t.Has("schema_version")
	old, hasOld := t.Text("version", ""), t.Has("version")
	if hasCurrent && hasOld {
		d.Warn("version", "Setting without effect", "schema_version says the same, and wins.")
	}
	if !hasCurrent {
		current = old
	}
	if (hasCurrent || hasOld) && !slices.Contains(schemas, current) {
		d.Warn(map[bool]string{true: "schema_version", false: "version"}[hasCurrent], "Unknown schema version",
			"%q is not one of %s. The file is read as %s.", current, strings.Join(schemas, ", "), schemas[len(schemas)-1])
	}
	return current
}

func (d *decoder) identity(t *document.Table, c *config) {
	name, ok := t.Text("name", ""), t.Has("name")
	switch {
	case ok && (!taskName.MatchString(name) || strings.Contains(name, "..")):
		d.Bad(t.At("name"), "Malformed task name", "%q must be org/name, of letters, digits, \".\", \"_\" and \"-\".", name)
	case !ok && t.Exists():
		d.Bad(t.Path, "Task name is missing", "Write name = \"org/name\" in [task], or leave the table out.")
	}
	c.name = name
	if v, ok := t.Text("version", ""), t.Has("version"); ok && v == "" {
		d.Bad(t.At("version"), "Empty version", "Write one such as \"1.0.0\", or leave it out.")
	} else {
		c.version = v
	}
	c.description = t.Text("description", "")
	c.keywords = t.Strings("keywords")
	c.authors = d.authors(t)
	t.Done()
}

// authors takes tables of name and email.
func (d *decoder) authors(t *document.Table) []string {
	var out []string
	for _, a := range t.Tables("authors") {
		name, email := a.Required("name"), a.Text("email", "")
		a.Done()
		if email != "" {
			name = strings.TrimSpace(name + " <" + email + ">")
		}
		out = append(out, name)
	}
	return out
}

// Bounds of labels, which are stored with every trial.
const (
	maxTags  = 50
	maxLabel = 200 // bytes
)

// labels reads what tables of results can be grouped by. Everything in metadata is
// the author's own, so a value of another type is not a mistake: it is not a label.
func (d *decoder) labels(t *document.Table, keywords []string) (l task.Labels) {
	label := func(key string, v any) string {
		text := ""
		switch v := v.(type) {
		case string:
			text = strings.TrimSpace(v)
		case int64, float64:
			text = fmt.Sprint(v)
		}
		if len(text) > maxLabel || strings.ContainsFunc(text, unicode.IsControl) {
			d.Warn(t.At(key), "Not used as a label", "Tables of results are not grouped by it: it has more than %d bytes, or control characters.", maxLabel)
			return ""
		}
		return text
	}
	l.Category, l.Difficulty = label("category", t.Values["category"]), label("difficulty", t.Values["difficulty"])
	tags := []any{}
	if list, ok := t.Values["tags"].([]any); ok {
		tags = append(tags, list...)
	}
	for _, k := range keywords {
		tags = append(tags, k)
	}
	for i, v := range tags {
		if i == maxTags {
			d.Warn(t.At("tags"), "Too many tags", "Tables of results are grouped by the first %d.", maxTags)
			break
		}
		if tag := label("tags", v); tag != "" && !slices.Contains(l.Tags, tag) {
			l.Tags = append(l.Tags, tag)
		}
	}
	return l
}

func (d *decoder) phase(t *document.Table, def task.Duration) phaseConfig {
	return phaseConfig{time: seconds(t, "timeout_sec", def), user: d.user(t), network: d.network(t, "")}
}

// user takes a name or a number.
func (d *decoder) user(t *document.Table) string {
	switch v := t.Get("user").(type) {
	case nil:
		return ""
	case string:
		if v == "" || strings.ContainsAny(v, ":\x00\n") {
			d.Bad(t.At("user"), "Malformed user", "%q is neither a user name nor a number.", v)
			return ""
		}
		return v
	case int64:
		if v < 0 || v > 1<<32-2 {
			d.Bad(t.At("user"), "User out of range", "%d is not the number of a user.", v)
			return ""
		}
		return strconv.FormatInt(v, 10)
	default:
		t.Bad("user", "Wrong type", "%s must be a name or a number, got %s.", t.At("user"), d.Show(v))
		return ""
	}
}

func (d *decoder) verifier(t *document.Table) verifierConfig {
	v := verifierConfig{phaseConfig: d.phase(t, 0), env: d.env(t, "env")}
	v.mode = t.Word("environment_mode", "", "shared", "separate")
	for _, h := range t.Tables("collect") {
		v.collect = append(v.collect, d.hook(h))
	}
	if own := t.Below("environment"); own.Exists() {
		e := d.environment(own, false)
		v.own = &e
	}
	if v.mode == "shared" && v.own != nil {
		d.Bad(t.At("environment_mode"), "Contradiction", "A shared verifier has no environment of its own: remove %s, or write \"separate\".",
			t.At("environment"))
	}
	t.Done()
	return v
}

func (d *decoder) hook(t *document.Table) task.Command {
	c := task.Command{Service: service(t.Text("service", "")), User: d.user(t), Time: seconds(t, "timeout_sec", defaultHookTime), TimeKey: t.At("timeout_sec")}
	if line := t.Required("command"); line != "" {
		c.Argv = shell(line)
	}
	t.Done()
	return c
}

// service returns the name of a sidecar in the form of plugins/task.
func service(name string) string {
	if name = strings.TrimSpace(name); name != mainService {
		return name
	}
	return ""
}

func (d *decoder) steps(t *document.Table) []stepConfig {
	var steps []stepConfig
	for _, s := range t.Tables("steps") {
		step := stepConfig{path: s.Path, name: s.Required("name")}
		agent := s.Below("agent")
		step.agent = d.phase(agent, 0)
		agent.Done()
		step.verifier = d.verifier(s.Below("verifier"))
		step.minScores = d.minScores(s)
		step.healthcheck = d.healthcheck(s.Below("healthcheck"))
		step.artifacts = d.artifacts(s)
		s.Done()
		if step.name != "" {
			d.stepName(s, step.name, steps)
		}
		steps = append(steps, step)
	}
	return steps
}

func (d *decoder) minScores(t *document.Table) map[string]float64 {
	v := t.Get("min_reward")
	if v == nil {
		return nil
	}
	if _, isTable := v.(map[string]any); !isTable {
		f, ok := t.Float("min_reward")
		if !ok {
			return nil
		}
		return map[string]float64{rewardKey: f}
	}
	m := t.Below("min_reward")
	if len(m.Values) == 0 {
		return nil
	}
	out := make(map[string]float64, len(m.Values))
	for key := range m.Values {
		if f, ok := m.Float(key); ok {
			out[key] = f
		}
	}
	return out
}

func (d *decoder) healthcheck(t *document.Table) *task.Healthcheck {
	if !t.Exists() {
		return nil
	}
	line := t.Required("command")
	h := &task.Healthcheck{
		Argv:          shell(line),
		Interval:      seconds(t, "interval_sec", task.Duration(5*time.Second)),
		Timeout:       seconds(t, "timeout_sec", task.Duration(30*time.Second)),
		TimeKey:       t.At("timeout_sec"),
		StartPeriod:   seconds(t, "start_period_sec", 0),
		StartInterval: seconds(t, "start_interval_sec", task.Duration(5*time.Second)),
		Retries:       3,
	}
	if n, ok := t.Integer("retries"); ok {
		if n < 0 || n > 10_000 {
			d.Bad(t.At("retries"), "Number out of range", "%d is not between 0 and 10000.", n)
		}
		h.Retries = int(n)
	}
	t.Done()
	return h
}

// shell returns the argv that runs a command line as the format's own tool
// does: with bash, or with sh if there is no bash.
func shell(line string) []string {
	return []string{"sh", "-c", `command -v bash >/dev/null 2>&1 && exec bash -c "$1"; exec sh -c "$1"`, "sh", line}
}
