// Package streamjson reads the events of Claude Code, which Qwen Code also
// uses, and the contents of messages in the form of Anthropic's API and of pi.
//
// It does not decide how a turn ended; each declaration does that.
package streamjson

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/berth-eval/berth/plugins/agent/cli"
)

// Reader reads stream-json.
type Reader struct {
	Transcript *cli.Transcript
	// Whole says that the parts of an answer come as messages with different
	// ids, each with the usage of the whole answer. Otherwise they share an id.
	Whole bool
	Last  *Result // nil if there was none
}

// event is one event, with only the fields that are read.
type event struct {
	Type      string `json:"type"`
	Subtype   string `json:"subtype"`
	Session   string `json:"session_id"`
	Parent    string `json:"parent_tool_use_id"` // the call that started the sub-agent
	Call      string `json:"tool_use_id"`        // of a task: the call that started it
	Goes      bool   `json:"is_backgrounded"`    // of a task that started
	Synthetic bool   `json:"isSynthetic"`
	APIError  bool   `json:"is_api_error_message"`
	Message   struct {
		ID      string          `json:"id"`
		Model   string          `json:"model"`
		Content json.RawMessage `json:"content"`
		Stop    string          `json:"stop_reason"`
		Usage   struct {
			Input  int64 `json:"input_tokens"`
			Cached int64 `json:"cache_read_input_tokens"`
			Output int64 `json:"output_tokens"`
		} `json:"usage"`
	} `json:"message"`
	Result
}

// Result is the last event of a turn.
type Result struct {
	IsError  bool     `json:"is_error"`
	Text     string   `json:"result"`
	Errors   []string `json:"errors"`
	Terminal string   `json:"terminal_reason"`
	Status   *int     `json:"api_error_status"`
	Stop     string   `json:"stop_reason"`
	Cost     *float64 `json:"total_cost_usd"` // of the session
	Models   map[string]struct {
		Input      int64 `json:"inputTokens"`
		Output     int64 `json:"outputTokens"`
		CacheRead  int64 `json:"cacheReadInputTokens"`
		CacheWrite int64 `json:"cacheCreationInputTokens"`
	} `json:"modelUsage"` // of the session
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
	Subtype string `json:"-"`
}

// Line implements cli.Events.
func (e *Reader) Line(line []byte) {
	var v event
	if !cli.Parse(line, &v) {
		return
	}
	switch v.Type {
	case "system":
		switch v.Subtype {
		case "init":
			e.Transcript.Session = cmp.Or(v.Session, e.Transcript.Session)
		case "task_started":
			if v.Goes {
				e.Transcript.GoesOn(v.Call)
			}
		case "task_notification":
			e.Transcript.Ended(v.Call)
		}
	case "assistant":
		if v.APIError || v.Message.Model == "<synthetic>" {
			return // the CLI's own text about an error, which is also in the result
		}
		m := Message(v.Message.Content)
		m.Stop = v.Message.Stop
		if m.ID, m.Response = v.Message.ID, v.Message.ID; e.Whole {
			m.ID, m.Response = "answer", ""
			if u := v.Message.Usage; u.Input+u.Output > 0 {
				e.Transcript.Used(cli.Tokens(u.Input, u.Cached, u.Output))
			}
		}
		e.Transcript.In(v.Parent).Message(m)
	case "user":
		book := e.Transcript.In(v.Parent)
		for _, b := range blocksOf(v.Message.Content) {
			if b.Type == "tool_result" {
				book.Result(b.CallID, Text(b.Content), b.IsError)
			} else if b.Text != "" && (v.Synthetic || v.Parent != "") {
				book.Note("user", b.Text) // text that the CLI adds, or a message to a sub-agent
			}
		}
	case "result":
		e.Transcript.Stopped(v.Stop)
		v.Result.Subtype = v.Subtype
		e.Last = &v.Result
	}
}

// block is one block of a message's content, in the form of Anthropic's API or
// of pi.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	Arguments json.RawMessage `json:"arguments"`
	CallID    string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// blocksOf returns the blocks of a content. A text counts as one block.
// Anything else is left out.
func blocksOf(content json.RawMessage) (out []block) {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []block{{Type: "text", Text: text}}
	}
	var each []json.RawMessage
	cli.Parse(content, &each)
	for _, raw := range each {
		var b block
		if json.Unmarshal(raw, &b) == nil {
			out = append(out, b)
		}
	}
	return out
}

// Message converts a content to a message of the model.
func Message(content json.RawMessage) (m cli.Message) {
	for _, b := range blocksOf(content) {
		switch b.Type {
		case "text":
			m.Text = joined(m.Text, b.Text)
		case "thinking":
			m.Thinking = joined(m.Thinking, b.Thinking)
		case "tool_use", "toolCall":
			m.Calls = append(m.Calls, cli.Call{ID: b.ID, Name: b.Name, Arguments: append(b.Input, b.Arguments...)})
		}
	}
	return m
}

// Text returns the text of a tool's result, with a word for each block of
// another kind.
func Text(content json.RawMessage) (text string) {
	for _, b := range blocksOf(content) {
		switch {
		case b.Text != "":
			text = joined(text, b.Text)
		case b.Type != "" && b.Type != "text":
			text = joined(text, fmt.Sprintf("[%s]", b.Type))
		}
	}
	return text
}

// joined joins two texts with a newline. An empty text adds no line.
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}
