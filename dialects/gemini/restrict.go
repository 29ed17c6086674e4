package gemini

import (
	"encoding/json"
	"strings"

	"github.com/berth-eval/berth/dialects/internal/wire"
	"github.com/berth-eval/berth/plugins/dialect"
)

// known are the members of a request that do not make the provider fetch or run
// anything. The provider accepts two spellings of each.
var known = both("model", "contents", "systemInstruction", "tools", "toolConfig", "safetySettings", "generationConfig", "labels", "store", "serviceTier", "generateContentRequest")

// kept are members that refer to data stored by the provider.
var kept = both("cachedContent")

// own are the members of a tool that the client runs.
var own = both("functionDeclarations", "computerUse")

// ofPart are the members of a part that contain or describe text or bytes.
var ofPart = both("text", "thought", "thoughtSignature", "inlineData", "functionCall", "functionResponse", "videoMetadata", "mediaResolution", "partMetadata")

func both(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n], m[snake(n)] = true, true
	}
	return m
}

// snake returns a name in the provider's other spelling.
func snake(name string) string {
	var b strings.Builder
	for _, c := range name {
		if c >= 'A' && c <= 'Z' {
			b.WriteByte('_')
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// Restrict implements dialect.Dialect.
func (Dialect) Restrict(_ dialect.Call, body *dialect.Object, allowed []string) (dropped []string, refused string) {
	s := &wire.Restriction{Allowed: allowed}
	seal(body, s, 0)
	return s.Dropped, s.Refused
}

func seal(body *dialect.Object, s *wire.Restriction, depth int) {
	s.Members(body, known, kept)
	tools(body, s)
	contents(body, s)
	for _, name := range []string{"generateContentRequest", "generate_content_request"} { // the request whose tokens are to be counted
		in, err := dialect.ParseObject(body.Get(name))
		switch {
		case err != nil:
		case depth > 0:
			s.Refuse(name)
		default:
			if seal(in, s, depth+1); in.Changed() {
				body.Set(name, in.Bytes())
			}
		}
	}
}

// contents checks the parts of all messages.
func contents(body *dialect.Object, s *wire.Restriction) {
	for _, name := range []string{"contents", "systemInstruction", "system_instruction"} {
		dialect.Each(body.Get(name), func(c json.RawMessage) {
			if b, ok := s.Block(c, "parts"); ok {
				parts(b.Get("parts"), s, 0)
			}
		})
	}
}

// tools keeps only the client's functions in each tool. The provider accepts a
// single tool in place of a list of one.
func tools(body *dialect.Object, s *wire.Restriction) {
	var left []json.RawMessage
	dropped := false
	dialect.Each(body.Get("tools"), func(raw json.RawMessage) {
		o, err := dialect.ParseObject(raw)
		if err != nil { // not a tool, so it stays
			dropped = true
			return
		}
		dialect.Fields(raw, func(name string, _ json.RawMessage) {
			if !own[name] && s.Drop(name) {
				o.Delete(name)
				dropped = true
			}
		})
		if b := o.Bytes(); string(b) != "{}" {
			left = append(left, b)
		}
	})
	switch {
	case !dropped:
	case len(left) == 0:
		body.Delete("tools")
	default:
		body.Set("tools", dialect.JSON(left))
	}
}

// parts checks the parts of a message, or of the result of a function.
func parts(raw json.RawMessage, s *wire.Restriction, depth int) {
	if depth > wire.Depth {
		s.Refuse("parts in parts")
		return
	}
	dialect.Each(raw, func(part json.RawMessage) {
		dialect.Fields(part, func(name string, v json.RawMessage) {
			switch {
			case !ofPart[name]:
				s.Refuse(name)
			case name == "inlineData" || name == "inline_data":
				if b, ok := s.Block(v, "mimeType", "mime_type", "data"); ok {
					s.Media.Base64(wire.Text(b.Get("mimeType"))+wire.Text(b.Get("mime_type")), b.Get("data"))
				}
			case name == "functionResponse" || name == "function_response":
				if b, ok := s.Block(v, "parts"); ok {
					parts(b.Get("parts"), s, depth+1)
				}
			}
		})
	})
}
