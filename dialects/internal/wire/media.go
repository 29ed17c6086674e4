package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	_ "image/gif" // formats of images that providers accept
	_ "image/jpeg"
	_ "image/png"
	"strings"

	_ "golang.org/x/image/webp" // as above

	"github.com/berth-eval/berth/plugins/dialect"
)

// Media adds up the media that a request itself contains, in the blocks in which a
// provider reads them. What looks like a file elsewhere is text.
type Media struct{ dialect.Media }

// Base64 counts a file in base64, a JSON string, with its media type. Only an image
// whose size is known has a number of tokens by itself.
func (m *Media) Base64(kind string, data json.RawMessage) {
	m.Data = append(m.Data, data)
	if strings.HasPrefix(kind, "audio/") {
		m.Audio = true
	}
	text := bytes.ReplaceAll(bytes.Trim(data, `"`), []byte(`\/`), []byte("/"))
	c, _, err := image.DecodeConfig(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(text)))
	if err != nil || c.Width <= 0 || c.Height <= 0 {
		m.Unbounded = true
		return
	}
	m.Images++
	m.Tokens += imageTokens(int64(c.Width), int64(c.Height))
}

// imageTokens is the largest number of tokens that a provider counts for an image of
// that size, in pixels. As documented, these are 1 for 750 pixels (Anthropic), 1 for
// 1,024 pixels, times up to 2.46 (OpenAI, by patches), 85 and 170 for each of up to
// 8 tiles (OpenAI, by tiles) and 258 for each tile of 768 by 768 (Gemini).
func imageTokens(width, height int64) int64 {
	return 2*(width/27+1)*(height/27+1) + 1500
}

// Sound counts sound in base64, a JSON string.
func (m *Media) Sound(data json.RawMessage) {
	m.Data = append(m.Data, data)
	m.Audio, m.Unbounded = true, true
}

// URL counts a file in a data URL, or in base64 without a media type. Other
// addresses are not part of the request.
func (m *Media) URL(raw json.RawMessage) {
	if !Given(raw) || !inline(raw) {
		return
	}
	text := raw[1 : len(raw)-1]
	kind, data, isURL := bytes.Cut(text, []byte(","))
	if !isURL {
		m.Base64("", raw)
		return
	}
	kind, encoded := bytes.CutSuffix(kind[len("data:"):], []byte(";base64"))
	if !encoded { // it may be text
		m.Unbounded = true
		return
	}
	m.Base64(string(kind), data)
}
