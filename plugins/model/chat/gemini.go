package chat

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// gemini speaks Google's generateContent API.
type gemini struct{}

func (gemini) path(name string) string {
	return "/v1beta/models/" + url.PathEscape(strings.TrimPrefix(name, "models/")) + ":generateContent"
}

func (gemini) authorize(h http.Header, token string) { h.Set("X-Goog-Api-Key", token) }

// ownID begins the ids of calls to which the provider gave none. They are not
// sent in this dialect, where an id is optional.
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
		q["tools"] = []object{{"functionDeclarations": r.tools(func(t Tool) object {
			return object{"name": t.Name, "description": t.Description, "parametersJsonSchema": t.Parameters}
		})}}
	}
	c := object{}
	if r.Effort != "" {
		c["thinkingConfig"] = object{"thinkingLevel": r.Effort}
	}
	r.sampling(c, "maxOutputTokens", "topP")
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
	if m.Text != "" {
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
