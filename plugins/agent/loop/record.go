package loop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// Recorder is an agent.Recorder that also counts the steps of a loop.
type Recorder struct {
	agent.Recorder

	model string
	most  int64
	steps *int64
}

// NewRecorder returns a recorder for tests of a worker. model is the model name
// of steps whose provider reports none; most is the limit of steps, 0 for none.
func NewRecorder(r agent.Recorder, model string, most int64) *Recorder {
	return &Recorder{Recorder: r, model: model, most: most, steps: new(int64)}
}

// Ask sends q to m as the next step of the turn. It fails when the session's
// limit of steps is reached; Worker.Turn must return that error unchanged.
func (r *Recorder) Ask(ctx context.Context, m chat.Model, q chat.Request) (chat.Reply, error) {
	if r.most > 0 && *r.steps >= r.most {
		return chat.Reply{}, errMaxSteps
	}
	*r.steps++
	return m.Ask(ctx, q)
}

// Of returns a new step with the text and the usage of a reply. The caller adds
// calls and observations and passes it to Step.
func (r *Recorder) Of(reply chat.Reply, message string) trajectory.Step {
	one := int64(1)
	s := trajectory.Step{
		Timestamp: trajectory.Stamp(time.Now()), Source: trajectory.Model, Message: trajectory.Text(message), ModelName: r.model,
		ReasoningContent: reply.Thinking, LLMCallCount: &one, Metrics: MetricsOf(reply.Usage),
	}
	if reply.Model != "" {
		s.ModelName = reply.Model
	}
	if reason := stopReason(reply); reason != "" {
		s.Extra = json.RawMessage(fmt.Sprintf(`{"stop_reason":%q}`, reason))
	}
	return s
}

// stopReason returns why the model stopped, in the word that most providers have
// for it; empty: unknown.
func stopReason(r chat.Reply) string {
	switch {
	case r.Stop == chat.Length:
		return "length"
	case r.Stop == chat.Refused:
		return "refusal"
	case r.Stop == chat.Done && len(r.Calls) > 0:
		return "tool_use"
	case r.Stop == chat.Done:
		return "stop"
	default:
		return ""
	}
}

// Final says that the calls of s end the turn, because the agent is done.
func Final(s *trajectory.Step) {
	s.Extra = json.RawMessage(fmt.Sprintf(`{"stop_reason":%q}`, trajectory.FinalCall))
}

// Call adds a tool call to s. arguments are what marshals to a JSON object, or
// JSON of the model; if that is not an object, the call is recorded with the text as
// "input".
func Call(s *trajectory.Step, id, name string, arguments any) error {
	if text, is := arguments.(json.RawMessage); is && len(text) > 0 && !isObject(text) {
		arguments = map[string]string{"input": strings.ToValidUTF8(string(text), "\uFFFD")}
	}
	raw, err := json.Marshal(arguments)
	if err != nil {
		return fmt.Errorf("record a call of %s: %w", name, err)
	}
	s.ToolCalls = append(s.ToolCalls, trajectory.ToolCall{ID: id, Name: name, Arguments: raw})
	return nil
}

func isObject(text []byte) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal(text, &o) == nil && o != nil
}

// Arguments adds a call of the model to s and decodes its arguments into the
// struct that into points to, by the rules of config.Decode. Models make
// mistakes: if the arguments do not fit, Arguments returns an answer that tells
// the model so, and adds it to s. The caller sends it instead of running the
// call. Otherwise the answer is nil.
func Arguments(s *trajectory.Step, c chat.Call, into any) *chat.Result {
	raw := c.Arguments
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	err := errors.Join(Call(s, c.ID, c.Name, raw), config.Decode(raw, into))
	if err == nil {
		return nil
	}
	answer := &chat.Result{CallID: c.ID, Failed: true, Text: fmt.Sprintf("The arguments of %s are wrong: %s. Nothing was run. Call it again with a JSON object that fits its parameters.",
		c.Name, strings.TrimSuffix(err.Error(), "."))}
	Observe(s, c.ID, answer.Text)
	return answer
}

// Observe adds the output of a call to s. call is the id of a call of the step,
// or empty.
func Observe(s *trajectory.Step, call, text string) {
	if s.Observation == nil {
		s.Observation = &trajectory.Observation{}
	}
	content := trajectory.Text(text)
	s.Observation.Results = append(s.Observation.Results, trajectory.Result{SourceCallID: call, Content: &content})
}

// Say adds a message of the user to a conversation. It continues one that has no reply
// yet, because the turn ended before.
func Say(talk []chat.Message, text string, images []chat.Image) []chat.Message {
	if n := len(talk); n > 0 && talk[n-1].Role == chat.User && len(talk[n-1].Results) == 0 {
		last := &talk[n-1]
		last.Text, last.Images = last.Text+"\n\n"+text, append(last.Images, images...)
		return talk
	}
	return append(talk, chat.Message{Role: chat.User, Text: text, Images: images})
}

// Note records a step of the user or the system, for text that the loop itself
// writes.
func (r *Recorder) Note(source trajectory.Source, text string) error {
	return r.Step(trajectory.Step{Timestamp: trajectory.Stamp(time.Now()), Source: source, Message: trajectory.Text(text)})
}

// MetricsOf converts a usage to the form of a trajectory; nil when nothing is
// known.
func MetricsOf(u chat.Usage) *trajectory.Metrics {
	if u == (chat.Usage{}) {
		return nil
	}
	m := &trajectory.Metrics{PromptTokens: u.Input, CompletionTokens: u.Output, CachedTokens: u.Cached}
	if u.Reasoning != nil {
		m.Extra = json.RawMessage(fmt.Sprintf(`{"reasoning_tokens":%d}`, *u.Reasoning))
	}
	return m
}

// Limits of the pictures of a message: the size of one in bytes, and their
// number.
const (
	maxImage  = 10 << 20
	maxImages = 20
)

// Images reads the pictures of a message from the view folder.
func Images(view string, files []string) ([]chat.Image, error) {
	if len(files) > maxImages {
		return nil, fmt.Errorf("the message has %d pictures, at most %d can be shown", len(files), maxImages)
	}
	var out []chat.Image
	for _, name := range files {
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("picture %q is not in the view", name)
		}
		b, err := readFile(filepath.Join(view, name), maxImage)
		if err != nil {
			return nil, fmt.Errorf("picture %q: %w", name, err)
		}
		media := http.DetectContentType(b)
		if !slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, media) {
			return nil, fmt.Errorf("picture %q is %s: models take png, jpeg, gif and webp", name, media)
		}
		out = append(out, chat.Image{MediaType: media, Data: b})
	}
	return out, nil
}

var errTooLarge = errors.New("it is too large")

func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		return nil, fmt.Errorf("%w: at most %d MiB", errTooLarge, limit>>20)
	}
	return b, err
}

// maxPrior is the largest trajectory to continue from, in bytes.
const maxPrior = 64 << 20

// Prior returns the trajectory that a session continues from as text for a
// prompt, at most limit bytes: the newest steps, each in a few lines. Empty
// without a trajectory.
func Prior(file string, limit int) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := readFile(file, maxPrior)
	if err != nil {
		return "", fmt.Errorf("read the trajectory to continue from: %w", err)
	}
	var t trajectory.Trajectory
	if err = json.NewDecoder(bytes.NewReader(b)).Decode(&t); err != nil {
		return "", fmt.Errorf("read the trajectory to continue from: %w", err)
	}
	var parts []string
	size := 0
	for _, s := range slices.Backward(t.Steps) {
		part := describe(&s)
		if size += len(part); size > limit {
			parts = append(parts, "[earlier steps are left out]\n")
			break
		}
		parts = append(parts, part)
	}
	slices.Reverse(parts)
	return strings.Join(parts, "\n"), nil
}

// describe returns one step in a few lines.
func describe(s *trajectory.Step) string {
	const most = 2000 // bytes of each text
	var b strings.Builder
	fmt.Fprintf(&b, "[%s] %s\n", s.Source, output.Middle(s.Message.String(), most))
	for _, c := range s.ToolCalls {
		fmt.Fprintf(&b, "called %s %s\n", c.Name, output.Middle(string(c.Arguments), most))
	}
	if s.Observation != nil {
		for _, r := range s.Observation.Results {
			if r.Content != nil {
				fmt.Fprintf(&b, "saw: %s\n", output.Middle(r.Content.String(), most))
			}
		}
	}
	return b.String()
}
