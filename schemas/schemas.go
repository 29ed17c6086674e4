// Package schemas holds the JSON Schema of every file that Berth writes and of
// everything that it prints with --json, made of the Go types that are written.
// The *.json files are what others should use.
//
// It must not hold a schema that is written beside the type that it
// describes.
package schemas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/invopop/jsonschema"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/core/trial/collect"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/trajectory"
)

//go:generate go run ./generate

// Schema is one schema: the name of its file without .json, and what it
// describes.
type Schema struct {
	Name  string
	Title string
	value any
}

// All are the schemas, files first.
func All() []Schema {
	return []Schema{
		{"manifest-line", "A line of manifest.jsonl of a run", store.ManifestLine{}},
		{"journal-line", "A line of journal/*.jsonl of a run", store.JournalLine{}},
		{"summary", "summary.json of a run", summary.Summary{}},
		{"result", "result.json of an attempt", record.Result{}},
		{"checksums", "files.json of an attempt", store.Checksums{}},
		{"event", "A line of events.jsonl of an attempt", record.Event{}},
		{"turn", "A line of turns.jsonl of an attempt", record.Turn{}},
		{"step", "A line of steps.jsonl of an attempt", record.Step{}},
		{"surface-line", "A line of surface.jsonl of an attempt", surface.Line{}},
		{"verdict", "A line of verdicts.jsonl of an attempt", record.Verdict{}},
		{"trajectory", "trajectory.json of an attempt: the Agent Trajectory Interchange Format", trajectory.Trajectory{}},
		{"view-task", "task.json of a view, what an agent, a verifier or a user may know of the task", task.Task{}},
		{"exchange", "A line of model/exchanges.jsonl of an attempt", gateway.Exchange{}},
		{"log-line", "A line of log of an attempt", logLine{}},
		{"artifacts", "artifacts/manifest.json of an attempt", []collect.Entry{}},
		{"cluster-line", "A line of the journals in cluster/ of a run", cluster.SealedLine{}},
		{"cluster-job", "A file in cluster/queue of a run", cluster.SealedJob{}},
		{"runtime-owner", "owner.json of a folder on node-local disk", node.Owner{}},
		{"bundle", "bundle.json of a bundle, the programs of an agent", bundle.Manifest{}},
		{"control", "control.json of a run, while a process runs it", output.CtlPointer{}},
		{"cli-failure", "what any command says on stderr when it fails with --json", output.Failure{}},
		{"cli-init", "berth init --json", output.Init{}},
		{"cli-plan", "berth plan --json", output.Plan{}},
		{"cli-validate", "berth validate --json", output.Validate{}},
		{"cli-run", "berth run, try and resume --json", output.Run{}},
		{"cli-run-detached", "berth run --detach --json", output.Detached{}},
		{"cli-ctl-status", "berth ctl RUN --json", output.CtlStatus{}},
		{"cli-ctl", "berth ctl RUN ACTION --json", output.Ctl{}},
		{"cli-show-runs", "berth show --json", output.Runs{}},
		{"cli-show-run", "berth show RUN --json", output.ShowRun{}},
		{"cli-show-trial", "berth show RUN TRIAL --json", output.ShowTrial{}},
		{"cli-show-attempt", "berth show RUN TRIAL ATTEMPT --json", output.ShowFull{}},
		{"cli-show-table", "berth show RUN --by NAMES --json", output.Table{}},
		{"cli-audit", "What `berth audit --json` prints, and the page that it writes", output.Audit{}},
		{"cli-compare", "berth compare --json", output.Comparison{}},
		{"cli-compare-baseline", "berth compare --baseline --json", output.Gate{}},
		{"cli-replay", "berth replay --json", output.Replay{}},
		{"cli-report", "berth report --json", output.Report{}},
		{"cli-note", "berth note --json", output.Notes{}},
		{"cli-export", "berth export --json", output.Export{}},
		{"cli-import", "berth import --json", output.Import{}},
		{"cli-show-follow", "berth show RUN TRIAL --watch --json, a line", output.ShowFollow{}},
		{"cli-task-check", "berth task check --json", output.TaskCheck{}},
		{"cli-agent-bundle", "berth agent bundle, export and import --json", output.AgentBundle{}},
		{"cli-agent-list", "berth agent list --json", output.AgentList{}},
		{"cli-plugin-list", "berth plugin list and info --json", output.PluginList{}},
		{"cli-plugin-test", "berth plugin test --json", output.PluginTest{}},
		{"cli-plugin-new", "berth plugin new --json", output.PluginNew{}},
		{"cli-plugin-install", "berth plugin install --json", output.PluginInstall{}},
		{"cli-plugin-lock", "berth plugin lock --json", output.PluginLock{}},
		{"cli-doctor", "berth doctor --json", output.Doctor{}},
		{"cli-prepare", "berth run --prepare-only --json", output.Prepare{}},
		{"cli-gateway", "berth gateway --json", output.Gateway{}},
		{"cli-gc", "berth gc --json", output.GC{}},
	}
}

// logLine is what core/trial writes to the log.
type logLine struct {
	Time  time.Time `json:"time"`
	From  string    `json:"from"` // a plugin, or core
	Stage string    `json:"stage,omitempty"`
	Text  string    `json:"text"`
}

const module = "github.com/berth-eval/berth"

// described are the folders whose comments become descriptions.
var described = []string{
	"core/store", "core/store/node", "cmd/berth/summary", "core/record", "core/plan", "cmd/berth/internal/config", "cmd/berth/internal/conform", "cmd/berth/internal/notes", "cmd/berth/output",
	"core/trial/collect", "core/gateway", "core/gateway/recording", "plugins/dialect", "plugins/agent/bundle", "plugins/task", "plugins/verifier", "plugins/environment", "plugins/surface", "plugins/trajectory", "plugins/conformance", "schemas",
}

// comments are those of the described folders, read once.
var comments = sync.OnceValues(func() (map[string]string, error) {
	r := &jsonschema.Reflector{}
	for _, dir := range described {
		if err := r.AddGoComments(module, "./"+dir, jsonschema.WithFullComment()); err != nil {
			return nil, fmt.Errorf("comments of %s: %w", dir, err)
		}
	}
	for k, v := range r.CommentMap { // lines of source are not paragraphs
		r.CommentMap[k] = strings.Join(strings.Fields(v), " ")
	}
	return r.CommentMap, nil
})

// JSON makes the schema. It reads the comments of the source, so the working
// folder must be the root of the tree.
func (s Schema) JSON() ([]byte, error) {
	texts, err := comments()
	if err != nil {
		return nil, err
	}
	r := &jsonschema.Reflector{BaseSchemaID: module, Anonymous: true, Mapper: special, Namer: name, CommentMap: texts}
	made := r.Reflect(s.value)
	nullable(reflect.TypeOf(s.value), made.Definitions, map[reflect.Type]bool{})
	made.Title = s.Title
	made.ID = jsonschema.ID("https://" + module + "/schemas/" + s.Name + ".json")
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	err = enc.Encode(made)
	return b.Bytes(), err
}

// name is a type's name with its package, since several packages have a Plan.
func name(t reflect.Type) string {
	if t.Name() == "" {
		return ""
	}
	return path.Base(t.PkgPath()) + "." + t.Name()
}

// nullable lets the fields be null that are written as null when they point to
// nothing.
func nullable(t reflect.Type, defs jsonschema.Definitions, seen map[reflect.Type]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return
	}
	seen[t] = true
	for _, f := range reflect.VisibleFields(t) { // with those of embedded structs
		nullable(f.Type, defs, seen)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		def := defs[name(t)]
		if def == nil || f.Type.Kind() != reflect.Pointer || strings.Contains(options, "omit") {
			continue
		}
		if prop, ok := def.Properties.Get(tag); ok {
			def.Properties.Set(tag, &jsonschema.Schema{
				OneOf: []*jsonschema.Schema{prop, {Type: "null"}}, Description: prop.Description,
			})
		}
	}
}

// special are types whose JSON is not what their fields say.
func special(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[task.Duration]():
		return &jsonschema.Schema{Type: "string", Description: "A duration such as 1m30s."}
	case reflect.TypeFor[time.Duration]():
		return &jsonschema.Schema{Type: "integer", Description: "Nanoseconds."}
	case reflect.TypeFor[cell.Text]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string"}, {Type: "object", Description: "The label of a secret."}}}
	case reflect.TypeFor[cell.Values](), reflect.TypeFor[trajectory.Content](), reflect.TypeFor[trajectory.Part]():
		return &jsonschema.Schema{Description: "Any JSON."}
	default:
		return nil
	}
}
