package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// said is one message of a conversation to continue from: of the user, or of
// the model with its calls and their results.
type said struct {
	user  bool
	text  string
	calls []saidCall
	time  string // ISO 8601
}

type saidCall struct {
	id, name  string
	arguments json.RawMessage // a JSON object
	result    string
}

// priorOf converts a trajectory to messages. It leaves out system prompts, which
// belong to the agent of the trajectory, and reasoning, which providers accept
// from their own models only. Ids of calls are new, because those of a
// trajectory may repeat, which no provider accepts.
func priorOf(t *trajectory.Trajectory) (out []said) {
	now, calls := trajectory.Stamp(time.Now()), 0
	for i := range t.Steps {
		s := &t.Steps[i]
		if s.Timestamp != "" {
			now = s.Timestamp
		}
		if s.Source == trajectory.System {
			continue
		}
		m := said{user: s.Source == trajectory.User, text: s.Message.String(), time: now}
		results, more := resultsOf(s.Observation)
		for _, c := range s.ToolCalls {
			result, ok := results[c.ID]
			if !ok {
				result = "[no result is recorded]"
			}
			calls++
			m.calls = append(m.calls, saidCall{id: fmt.Sprintf("prior_%d", calls), name: toolName(c.Name), arguments: objectOf(c.Arguments), result: result})
		}
		if m.text != "" || len(m.calls) > 0 {
			out = append(out, m)
		}
		if more != "" {
			out = append(out, said{user: true, text: more, time: now})
		}
	}
	return out
}

// resultsOf returns the results by the ids of their calls, and the text of those
// that belong to no call.
func resultsOf(o *trajectory.Observation) (results map[string]string, more string) {
	results = map[string]string{}
	if o == nil {
		return results, ""
	}
	for _, r := range o.Results {
		text := ""
		if r.Content != nil {
			text = r.Content.String()
		}
		if r.SourceCallID != "" {
			results[r.SourceCallID] = text
		} else if text != "" {
			more = strings.TrimPrefix(more+"\n"+text, "\n")
		}
	}
	return results, more
}

func objectOf(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}

var noToolName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// toolName returns a name that every provider accepts.
func toolName(name string) string {
	name = noToolName.ReplaceAllString(name, "_")
	if name == "" {
		return "tool"
	}
	return name[:min(len(name), 64)]
}

// priorID returns the id of the session that continues from a trajectory: the
// same each time, so that runs can be compared.
func priorID(ms []said) string {
	var b strings.Builder
	for _, m := range ms {
		b.WriteString(m.text + "\n")
	}
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(b.String())).String()
}

// lines are the lines of a session file.
type lines struct{ strings.Builder }

func (l *lines) add(start *cli.Start, v any) { l.WriteString(start.Marshal(v) + "\n") }

type object = map[string]any

// claudePrior writes a session file of Claude Code and returns the id of the
// session. Events refer to the one before them. The file is in a folder with
// the name of the working folder.
func claudePrior(r *cli.Run, start *cli.Start) string {
	ms := priorOf(r.Prior)
	if len(ms) == 0 {
		return ""
	}
	id := priorID(ms)
	var file lines
	var parent any // of the next event; nil at first
	count := 0
	event := func(kind, at string, message object) {
		count++
		self := uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s %d", id, count)).String()
		file.add(start, object{
			"type": kind, "uuid": self, "parentUuid": parent, "isSidechain": false, "userType": "external", "sessionId": id,
			"cwd": r.Workdir, "version": r.Prior.Agent.Version, "gitBranch": "", "timestamp": at, "message": message,
		})
		parent = self
	}
	for i, m := range ms {
		if m.user {
			event("user", m.time, object{"role": "user", "content": m.text})
			continue
		}
		var content, results []object
		if m.text != "" {
			content = append(content, object{"type": "text", "text": m.text})
		}
		for _, c := range m.calls {
			content = append(content, object{"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments})
			results = append(results, object{"type": "tool_result", "tool_use_id": c.id, "content": c.result})
		}
		event("assistant", m.time, object{
			"id": fmt.Sprintf("msg_prior_%d", i+1), "type": "message", "role": "assistant", "model": r.Model.Name, "content": content,
			"stop_reason": nil, "stop_sequence": nil, "usage": object{"input_tokens": 0, "output_tokens": 0},
		})
		if len(results) > 0 {
			event("user", m.time, object{"role": "user", "content": results})
		}
	}
	folder := regexp.MustCompile(`[^a-zA-Z0-9-]`).ReplaceAllString(r.Workdir, "-")
	start.Text("claude/projects/"+folder+"/"+id+".jsonl", file.String())
	return id
}

// codexPrior writes a session file of Codex and returns the id of the session.
func codexPrior(r *cli.Run, start *cli.Start) string {
	ms := priorOf(r.Prior)
	if len(ms) == 0 {
		return ""
	}
	id := priorID(ms)
	begun, err := time.Parse(time.RFC3339, ms[0].time)
	if err != nil {
		begun = time.Now()
	}
	begun = begun.UTC()
	var file lines
	line := func(at, kind string, payload object) {
		file.add(start, object{"timestamp": at, "type": kind, "payload": payload})
	}
	stamp := begun.Format("2006-01-02T15:04:05.000Z")
	line(stamp, "session_meta", object{
		"session_id": id, "id": id, "timestamp": stamp, "cwd": r.Workdir, "originator": "codex_exec", "cli_version": r.Prior.Agent.Version, "source": "exec",
	})
	for _, m := range ms {
		role, kind, told := "assistant", "output_text", "agent_message"
		if m.user {
			role, kind, told = "user", "input_text", "user_message" // a session without one is not found
		}
		if m.text != "" {
			line(m.time, "response_item", object{"type": "message", "role": role, "content": []object{{"type": kind, "text": m.text}}})
			line(m.time, "event_msg", object{"type": told, "message": m.text})
		}
		for _, c := range m.calls {
			line(m.time, "response_item", object{"type": "function_call", "call_id": c.id, "name": c.name, "arguments": string(c.arguments)})
		}
		for _, c := range m.calls {
			line(m.time, "response_item", object{"type": "function_call_output", "call_id": c.id, "output": c.result})
		}
	}
	start.Text(fmt.Sprintf("codex/sessions/%s/rollout-%s-%s.jsonl", begun.Format("2006/01/02"), begun.Format("2006-01-02T15-04-05"), id), file.String())
	return id
}
