package dialects_test

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/png"
	"strings"
	"testing"

	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/plugins/dialect"
)

// picture is an image of that size, in base64.
func picture(t *testing.T, width, height int) string {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// A file is base64 in a block in which the provider reads a file. The same bytes
// elsewhere are text, and only an image of known size has a number of tokens.
func TestOnlyFilesInTheirBlocksAreMedia(t *testing.T) {
	t.Parallel()
	small, large, hex := picture(t, 100, 50), picture(t, 2000, 1000), strings.Repeat("0a1b", 5000)
	pdf := base64.StdEncoding.EncodeToString([]byte("%PDF-1.7 " + hex))
	for _, tt := range []struct {
		name, dialect, body string
		want                dialect.Media // Data: only their number counts
		data                int
	}{
		{"an image", "anthropic", `{"messages":[{"content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + small + `"}}]}]}`, dialect.Media{Images: 1}, 1},
		{"an image in a result", "anthropic", `{"messages":[{"content":[{"type":"tool_result","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + large + `"}}]}]}]}`, dialect.Media{Images: 1}, 1},
		{"a document", "anthropic", `{"messages":[{"content":[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"` + pdf + `"}}]}]}`, dialect.Media{Unbounded: true}, 1},
		{"text of a document", "anthropic", `{"messages":[{"content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"` + hex + `"}}]}]}`, dialect.Media{}, 0},
		{"arguments of a tool", "anthropic", `{"messages":[{"content":[{"type":"tool_use","input":{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + small + `"}}}]}]}`, dialect.Media{}, 0},
		{"text like an address", "anthropic", `{"messages":[{"content":[{"type":"text","text":"x","url":"data:image/png;base64,` + small + `"}]}]}`, dialect.Media{}, 0},
		{"an image", "openai-chat", `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + small + `"}}]}]}`, dialect.Media{Images: 1}, 1},
		{"a file", "openai-chat", `{"messages":[{"content":[{"type":"file","file":{"file_data":"data:application/pdf;base64,` + pdf + `"}}]}]}`, dialect.Media{Unbounded: true}, 1},
		{"bare base64", "openai-chat", `{"messages":[{"content":[{"type":"file","file":{"file_data":"` + pdf + `"}}]}]}`, dialect.Media{Unbounded: true}, 1},
		{"text in an address", "openai-chat", `{"messages":[{"content":[{"type":"file","file":{"file_data":"data:text/plain,` + hex + `"}}]}]}`, dialect.Media{Unbounded: true}, 0},
		{"sound", "openai-chat", `{"messages":[{"content":[{"type":"input_audio","input_audio":{"data":"` + pdf + `","format":"wav"}}]}]}`, dialect.Media{Unbounded: true, Audio: true}, 1},
		{"sound to come", "openai-chat", `{"modalities":["text","audio"],"messages":[]}`, dialect.Media{Audio: true}, 0},
		{"text in a text", "openai-chat", `{"messages":[{"content":"{\"image_url\": \"data:image/png;base64,` + small + `\"}"}]}`, dialect.Media{}, 0},
		{"an image", "openai", `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,` + small + `"}]}]}`, dialect.Media{Images: 1}, 1},
		{"a screenshot", "openai", `{"input":[{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,` + small + `"}}]}`, dialect.Media{Images: 1}, 1},
		{"output of a tool", "openai", `{"input":[{"type":"function_call_output","output":"` + hex + `"}]}`, dialect.Media{}, 0},
		{"an image", "gemini", `{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"` + small + `"}},{"inline_data":{"mime_type":"image/png","data":"` + large + `"}}]}]}`, dialect.Media{Images: 2}, 2},
		{"sound", "gemini", `{"contents":[{"parts":[{"inlineData":{"mimeType":"audio/wav","data":"` + pdf + `"}}]}]}`, dialect.Media{Unbounded: true, Audio: true}, 1},
		{"text", "gemini", `{"contents":[{"parts":[{"text":"` + hex + `"}]}]}`, dialect.Media{}, 0},
	} {
		for _, d := range dialects.All.Dialects {
			if string(d.Name()) != tt.dialect {
				continue
			}
			body, err := dialect.ParseObject([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			f, err := d.Facts(dialect.Call{}, body)
			if err != nil {
				t.Fatal(err)
			}
			got := f.Media
			if got.Images != tt.want.Images || got.Unbounded != tt.want.Unbounded || got.Audio != tt.want.Audio || len(got.Data) != tt.data || got.Images > 0 && got.Tokens < 258*got.Images {
				t.Errorf("%s, %s: %d images of %d tokens, unbounded %t, audio %t, %d parts; want %+v", tt.dialect, tt.name, got.Images, got.Tokens, got.Unbounded, got.Audio, len(got.Data), tt.want)
			}
		}
	}
}
