package uniclaw

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
)

// keys is what the file of a task says.
type keys struct {
	id, category      string
	task, snapshot    string
	system, agent     string
	model, image      string // models of the runner that the task was written for
	turn, total       int    // seconds; total 0: no limit
	threshold         float64
	references        []text
	sources, skills   []text
	services          []service
	recording, headed string
	followUps         int
	user, supervisor  json.RawMessage // objects, or nil
	policy            string          // of the simulated user
	instructions      string
}

// service is a program that runs beside the agent.
type service struct {
	name, path, start string
	oneshot           bool
	at                *table
}

// maxSeconds bounds times: a month.
const maxSeconds = 31 * 24 * 3600

// maxFollowUps bounds the messages of the simulated user.
const maxFollowUps = 1000

// all reads the file. With snapshot, a task may have task_snapshot alone.
func (t *table) all(snapshot bool) keys {
	k := keys{
		id: t.required("task_id"), category: t.required("category"),
		system: t.word("agent_sys", "openclaw", "openclaw", "openclaw_edict", "nanobot"),
		agent:  t.text("agent_id", "main"), model: t.text("model", "gpt-5.4"),
		turn: t.whole("timeout_seconds", 1200, 1, maxSeconds), total: t.whole("max_total_seconds", 1800, 0, maxSeconds),
		threshold:  t.number("success_threshold", 1, 0, 1),
		references: t.texts("references"), sources: t.texts("sources"), skills: t.texts("skills"),
		recording: t.word("recording", "none", "none", "low", "high"), headed: t.word("headed", "auto", "auto", "true", "false"),
	}
	k.image = t.text("image_model", k.model)
	if k.snapshot = t.text("task_snapshot", ""); snapshot && strings.TrimSpace(k.snapshot) != "" {
		k.task = t.text("task", "")
	} else {
		k.task = t.required("task")
	}
	if k.recording == "high" && k.headed == "false" {
		t.bad("headed", "Settings contradict each other", "recording is \"high\", which needs a browser with a window: remove headed.")
	}
	for _, e := range t.list("services") {
		if s := t.r.table(e.path, e.node); s != nil {
			k.services = append(k.services, s.service())
		}
	}
	t.preExec()
	if c := t.below("codex"); c != nil {
		k.codex(c)
	} else {
		k.followUps = usualFollowUps
	}
	for key, why := range refused {
		if t.has(key) {
			t.known = append(t.known, key)
			t.bad(key, "Key is refused", "%s", why)
		}
	}
	t.done()
	return k
}

// usualFollowUps is how many messages the user may send where a task says nothing.
const usualFollowUps = 2

// refused are keys of other versions of the layout.
var refused = map[string]string{
	"privacy":   "Name the variables of the host in the file .privacy beside the task's files, one a line.",
	"task_live": "Write the instruction under task, and one for the copies of live sites under task_snapshot.",
}

func (t *table) service() service {
	s := service{name: t.required("name"), start: t.required("start"), oneshot: t.boolean("oneshot"), at: t}
	s.path = t.text("path", s.name)
	t.done()
	return s
}

// preExec refuses programs that would run on the host.
func (t *table) preExec() {
	t.boolean("pre_exec_parallel_safe")
	if n := t.list("pre_exec"); len(n) > 0 {
		t.bad("pre_exec", "Programs for the host are refused", "The task wants %d of them to run outside of the sandbox, before it starts. Berth runs nothing of a task there.", len(n))
	}
}

func (k *keys) codex(t *table) {
	k.followUps = t.whole("max_user_followups", usualFollowUps, 0, maxFollowUps)
	if u := t.below("user_simulator"); u != nil {
		k.policy = u.text("policy", "")
		k.user = u.free()
	}
	if s := t.below("supervisor"); s != nil {
		k.instructions = s.text("instructions", "")
		k.supervisor = s.free()
	}
	t.done()
}

// idForm is what ids and the names of folders may be.
var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// check compares the file with where it is.
func (k *keys) check(t *table, category, id string) {
	for _, c := range []struct{ key, got, want, what string }{
		{"task_id", k.id, id, "the name of the file"}, {"category", k.category, category, "the name of its folder"},
	} {
		switch {
		case c.got == "": // reported
		case !idForm.MatchString(c.got):
			t.bad(c.key, "Not an id", "%s is %q: use letters, digits, \".\", \"_\" and \"-\", and begin with a letter or a digit.", c.key, c.got)
		case c.got != c.want:
			t.bad(c.key, "Another id than that of the file", "%s is %q, but %s says %q.", c.key, c.got, c.what, c.want)
		}
	}
}

// metadata is what only the benchmark's own runner uses.
func (k *keys) metadata() json.RawMessage {
	b, err := json.Marshal(struct {
		System     string          `json:"agent_sys"`
		Agent      string          `json:"agent_id"`
		Model      string          `json:"model"`
		Image      string          `json:"image_model"`
		Recording  string          `json:"recording"`
		Headed     string          `json:"headed"`
		User       json.RawMessage `json:"user_simulator,omitempty"`
		Supervisor json.RawMessage `json:"supervisor,omitempty"`
	}{k.system, k.agent, k.model, k.image, k.recording, k.shown(), k.user, k.supervisor})
	if err != nil {
		panic(err) // a struct of strings and valid JSON
	}
	return b
}

// shown is whether the browser has a window: a good recording needs one.
func (k *keys) shown() string {
	if k.recording == "high" {
		return "true"
	}
	return k.headed
}

// instruction returns what the agent is told.
func (k *keys) instruction(snapshot bool) string {
	what := k.task
	if snapshot && strings.TrimSpace(k.snapshot) != "" {
		what = k.snapshot
	}
	var b strings.Builder
	b.WriteString("Work in the folder " + workspace + ". Put the files that the task asks for into " + results + ".\n")
	if len(k.sources) > 0 {
		b.WriteString("The files that come with the task are in " + placeSources + ".\n")
	}
	if len(k.skills) > 0 {
		b.WriteString("Skills that may help are in " + placeSkills + ".\n")
	}
	b.WriteString("When you have finished, send a message without a tool call.\n\n")
	return b.String() + strings.TrimSpace(what) + "\n"
}

// supervise returns the verifiers of a task: one judges rounds, the other makes
// one result of them.
func (k *keys) supervise() []task.VerifierUse {
	return []task.VerifierUse{
		{Name: "supervisor", Settings: settingsJSON(map[string]any{"rubric": rubric, "instructions": k.instructions})},
		{Name: "loop-result", Settings: settingsJSON(map[string]any{"threshold": k.threshold})},
	}
}

func settingsJSON(m map[string]any) json.RawMessage {
	for name, v := range m {
		if v == "" {
			delete(m, name)
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and finite numbers
	}
	return b
}
