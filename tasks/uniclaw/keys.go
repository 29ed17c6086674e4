package uniclaw

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
)

// keys is what the file of a task says.
type keys struct {
	id, category    string
	task, snapshot  string
	turn, total     int // seconds; total 0: no limit
	threshold       float64
	references      []document.Text
	sources, skills []document.Text
	services        []service
	copies          bool // it runs on copies of live sites
	followUps       int
	policy          string // of the simulated user
	instructions    string
	metadata        json.RawMessage // what only the benchmark's own runner uses
}

// service is a program that runs beside the agent.
type service struct {
	name, path, start string
	oneshot           bool
	at                *document.Table
}

// maxSeconds bounds times: a month.
const maxSeconds = 31 * 24 * 3600

// maxFollowUps bounds the messages of the simulated user.
const maxFollowUps = 1000

// all reads the file. snapshot is the setting of the dataset; declared says that the
// task can use copies of live sites, as a task with task_snapshot can, too.
func all(t *document.Table, snapshot, declared bool) keys {
	k := keys{
		id: t.Required("task_id"), category: t.Required("category"),
		turn: t.Whole("timeout_seconds", 1200, 1, maxSeconds), total: t.Whole("max_total_seconds", 1800, 0, maxSeconds),
		threshold:  t.Number("success_threshold", 1, 0, 1),
		references: t.Texts("references"), sources: t.Texts("sources"), skills: t.Texts("skills"),
	}
	k.metadata = metadata(t)
	k.snapshot = t.Text("task_snapshot", "")
	other := strings.TrimSpace(k.snapshot) != ""
	k.copies = snapshot && (declared || other)
	if k.copies && other {
		t.Text("task", "")
		k.task = k.snapshot
	} else {
		k.task = t.Required("task")
	}
	for _, s := range t.Tables("services") {
		k.services = append(k.services, readService(s))
	}
	preExec(t, k.copies, declared || other)
	if c := t.Below("codex"); c.Exists() {
		k.codex(c)
	} else {
		k.followUps = usualFollowUps
	}
	for key, why := range refused {
		if t.Has(key) {
			t.Known = append(t.Known, key)
			t.Bad(key, "Key is refused", "%s", why)
		}
	}
	t.Done()
	return k
}

// usualFollowUps is how many messages the user may send where a task says nothing.
const usualFollowUps = 2

// refused are keys of other versions of the layout.
var refused = map[string]string{
	"privacy":   "Name the variables of the host in the file .privacy beside the task's files, one a line.",
	"task_live": "Write the instruction under task, and one for the copies of live sites under task_snapshot.",
}

func readService(t *document.Table) service {
	s := service{name: t.Required("name"), start: t.Required("start"), at: t}
	s.oneshot, _ = t.Boolean("oneshot")
	s.path = t.Text("path", s.name)
	t.Done()
	return s
}

// preExec refuses programs that would run on the host. They prepare live sites, which
// a task does without if it uses copies of them.
func preExec(t *document.Table, copies, can bool) {
	t.Boolean("pre_exec_parallel_safe")
	names := t.Strings("pre_exec")
	if len(names) == 0 || copies {
		return
	}
	instead := ""
	if can {
		instead = " With snapshot = true in the dataset's config it uses copies of live sites and does without."
	}
	t.Bad("pre_exec", "Programs for the host are refused", "The task wants %s to run outside of the sandbox, before it starts. Berth runs nothing of a task there.%s", strings.Join(names, ", "), instead)
}

func (k *keys) codex(t *document.Table) {
	k.followUps = t.Whole("max_user_followups", usualFollowUps, 0, maxFollowUps)
	k.policy = t.Below("user_simulator").Text("policy", "")
	k.instructions = t.Below("supervisor").Text("instructions", "")
	t.Done()
}

// idForm is what ids and the names of folders may be.
var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// check compares the file with where it is.
func (k *keys) check(t *document.Table, category, id string) {
	for _, c := range []struct{ key, got, want, what string }{
		{"task_id", k.id, id, "the name of the file"}, {"category", k.category, category, "the name of its folder"},
	} {
		switch {
		case c.got == "": // reported
		case !idForm.MatchString(c.got):
			t.Bad(c.key, "Not an id", "%s is %q: use letters, digits, \".\", \"_\" and \"-\", and begin with a letter or a digit.", c.key, c.got)
		case c.got != c.want:
			t.Bad(c.key, "Another id than that of the file", "%s is %q, but %s says %q.", c.key, c.got, c.what, c.want)
		}
	}
}

// metadata checks what only the benchmark's own runner uses, and returns it as it is
// written.
func metadata(t *document.Table) json.RawMessage {
	t.Word("agent_sys", "", "openclaw", "openclaw_edict", "nanobot")
	t.Text("agent_id", "")
	t.Text("model", "")
	t.Text("image_model", "")
	if recording, headed := t.Word("recording", "", "none", "low", "high"), t.Word("headed", "", "auto", "true", "false"); recording == "high" && headed == "false" {
		t.Bad("headed", "Settings contradict each other", "recording is \"high\", which needs a browser with a window: remove headed.")
	}
	all := map[string]any{}
	for _, key := range []string{"agent_sys", "agent_id", "model", "image_model", "recording", "headed", "codex"} {
		if v := t.Values[key]; v != nil {
			all[key] = v
		}
	}
	return t.R.JSON(document.Entry{Path: "codex", Value: all})
}

// instruction returns what the agent is told. sources says that it gets any, and
// fromImage names skills that are not placed: the image has them, or the agent itself.
func (k *keys) instruction(sources bool, fromImage []string) string {
	var b strings.Builder
	b.WriteString("Work in the folder " + workspace + ". Put the files that the task asks for into " + results + ".\n")
	if sources {
		b.WriteString("The files that come with the task are in " + placeSources + ".\n")
	}
	for i, s := range k.skills {
		if i == 0 {
			b.WriteString("Skills that may help:\n")
		}
		name := path.Base(s.Value)
		if !slices.Contains(fromImage, name) {
			name = path.Join(placeSkills, name)
		}
		b.WriteString("- " + name + "\n")
	}
	b.WriteString("When you have finished, send a message without a tool call.\n\n")
	return b.String() + strings.TrimSpace(k.task) + "\n"
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
