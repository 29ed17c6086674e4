package chat

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// gemini speaks Google's generateContent API.
type gemini struct{}

func (gemini) path(name string) string {
	return "/v1beta/models/" + url.PathEscape(strings.TrimPrefix(name, "models/")) + ":generateContent"
}

func (gemini) authorize(h http.Header, token string) { h.Set("X-Goog-Api-Key", token) }

// ownID begins the ids of calls to which the provider gave none. They are not
// sent.
const ownID = "berth-call-"

func (gemini) request(name string, r Request) map[string]any {
	contents := []object{}
	names := map[string]string{} // of functions, by the id of the call
	for i := range r.Messages {
		m := &r.Messages[i]
		for _, c := range m.Calls {
			names[c.ID] = c.Name
		}
		contents = append(contents, object{
			"role": map[Role]string{User: "user", Assistant: "model"}[m.Role], "parts": geminiParts(m, names, gemini3(name)),
		})
	}
	q := object{"contents": contents}
	if r.System != "" {
		q["systemInstruction"] = object{"parts": []object{{"text": r.System}}}
	}
	if len(r.Tools) > 0 {
		var functions []object
		for _, t := range r.Tools {
			functions = append(functions, object{"name": t.Name, "description": t.Description, "parametersJsonSchema": t.Parameters})
		}
		q["tools"] = []object{{"functionDeclarations": functions}}
	}
	c := object{}
	if r.Effort != "" {
		c["thinkingConfig"] = object{"thinkingLevel": r.Effort}
	}
	if r.MaxTokens > 0 {
		c["maxOutputTokens"] = r.MaxTokens
	}
	if r.Temperature != nil {
		c["temperature"] = *r.Temperature
	}
	if r.TopP != nil {
		c["topP"] = *r.TopP
	}
	if len(c) > 0 {
		q["generationConfig"] = c
	}
	return q
}

// format implements dialect.
func (gemini) format(request object, s *schema) {
	c := member(request, "generationConfig")
	c["responseMimeType"], c["responseJsonSchema"] = "application/json", s.sent
}

// gemini3 reports whether a model is not older than Gemini 3. Since then results
// of functions have pictures, and a schema goes together with functions. Names
// that are not Google's count as new.
func gemini3(name string) bool {
	return !olderGemini.MatchString(strings.TrimPrefix(name, "models/"))
}

var olderGemini = regexp.MustCompile(`^gemini-[12](\.|-|$)`)

// geminiParts converts one message. Older models take pictures only beside the
// results of functions.
func geminiParts(m *Message, names map[string]string, within bool) (out []object) {
	var beside []Image
	for _, r := range m.Results {
		key := "output"
		if r.Failed {
			key = "error"
		}
		f := object{"name": names[r.CallID], "response": object{key: r.Text}}
		if !strings.HasPrefix(r.CallID, ownID) {
			f["id"] = r.CallID
		}
		if within && len(r.Images) > 0 {
			f["parts"] = geminiImages(r.Images)
		} else {
			beside = append(beside, r.Images...)
		}
		out = append(out, object{"functionResponse": f})
	}
	out = append(out, geminiImages(append(beside, m.Images...))...)
	if m.Text != "" || len(out)+len(m.Calls) == 0 {
		out = append(out, object{"text": m.Text})
	}
	for _, c := range m.Calls {
		args := c.Arguments
		if !json.Valid(args) {
			args = json.RawMessage("{}")
		}
		f := object{"name": c.Name, "args": args}
		if !strings.HasPrefix(c.ID, ownID) {
			f["id"] = c.ID
		}
		part := object{"functionCall": f}
		if c.Signature != "" {
			part["thoughtSignature"] = c.Signature
		}
		out = append(out, part)
	}
	return out
}

func geminiImages(images []Image) (parts []object) {
	for _, p := range images {
		parts = append(parts, object{"inlineData": object{"mimeType": p.MediaType, "data": base64.StdEncoding.EncodeToString(p.Data)}})
	}
	return parts
}

// geminiAnswer is a reply in the provider's format.
type geminiAnswer struct {
	Model      string `json:"modelVersion"`
	Candidates []struct {
		Finish  string `json:"finishReason"`
		Content struct {
			Parts []struct {
				Text      string
				Thought   bool
				Signature string `json:"thoughtSignature"`
				Call      *struct {
					ID, Name string
					Args     json.RawMessage
				} `json:"functionCall"`
			}
		}
	}
	Feedback *struct {
		Reason string `json:"blockReason"`
	} `json:"promptFeedback"`
	Usage *struct {
		Input   *int64 `json:"promptTokenCount"`
		Cached  *int64 `json:"cachedContentTokenCount"`
		Output  *int64 `json:"candidatesTokenCount"`
		Thought *int64 `json:"thoughtsTokenCount"`
	} `json:"usageMetadata"`
}

// geminiRefusals are the finish reasons that mean a refusal.
var geminiRefusals = []string{"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY"}

func (gemini) reply(body []byte) (Reply, error) {
	var a geminiAnswer
	if err := json.Unmarshal(body, &a); err != nil {
		return Reply{}, err
	}
	r := Reply{Stop: Done, Model: a.Model}
	if u := a.Usage; u != nil {
		r.Usage = Usage{Input: u.Input, Cached: u.Cached, Output: sum(u.Output, u.Thought), Reasoning: u.Thought}
		if u.Output == nil {
			r.Usage.Output = u.Thought
		}
	}
	if len(a.Candidates) == 0 {
		if a.Feedback == nil {
			return Reply{}, errNothing
		}
		r.Stop = Refused
		return r, nil
	}
	c := &a.Candidates[0]
	for _, p := range c.Content.Parts {
		switch {
		case p.Call != nil:
			call := Call{ID: p.Call.ID, Name: p.Call.Name, Arguments: p.Call.Args, Signature: p.Signature}
			if call.ID == "" {
				call.ID = fmt.Sprintf("%s%s-%d", ownID, call.Name, len(r.Calls))
			}
			r.Calls = append(r.Calls, call)
		case p.Thought:
			r.Thinking += p.Text
		default:
			r.Text += p.Text
		}
	}
	switch {
	case c.Finish == "MAX_TOKENS":
		r.Stop = Length
	case slices.Contains(geminiRefusals, c.Finish):
		r.Stop = Refused
	}
	return r, nil
}
