// Package viewtools gives a model tools to look at a view: the folder of files that
// a verifier or a simulated user may see. It lists, reads and searches files, and
// shows pictures.
//
// What is in a view may come from an agent: no link is followed, no pipe is
// opened, and everything is bounded. The package only reads.
package viewtools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Bounds of what the tools return.
const (
	maxRead    = 32 << 10  // bytes of a file in one call
	maxFile    = 256 << 20 // bytes of a file that is read at all
	maxNames   = 1000
	maxMatches = 100
	maxMatch   = 400 // bytes of a line in the result of a search
	maxSearch  = 64 << 20
	maxPicture = 64 << 20
)

// Tools are the tools, for chat.Request.
var Tools = []chat.Tool{
	{Name: "list", Description: "Lists the files of a folder and of the folders in it.", Parameters: parameters(`"folder": {"type": "string", "description": "for example attempt/artifacts; empty: everything"}`, "folder")},
	{Name: "read", Description: "Reads a text file, at most 32 KiB in one call.", Parameters: parameters(`"file": {"type": "string"}, "offset": {"type": "integer", "description": "bytes to skip"}`, "file")},
	{Name: "search", Description: "Searches the files of a folder for a regular expression (RE2), line by line.", Parameters: parameters(`"pattern": {"type": "string"}, "folder": {"type": "string", "description": "empty: everything"}`, "pattern")},
	{Name: "look", Description: "Shows a picture (PNG, JPEG, GIF or WebP).", Parameters: parameters(`"file": {"type": "string"}`, "file")},
}

func parameters(properties, required string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"type": "object", "properties": {%s}, "required": [%q], "additionalProperties": false}`, properties, required))
}

// View is the folder that the tools read. It is safe for concurrent use.
type View string

// Do carries out a call. What cannot be done is told to the model.
func (v View) Do(c chat.Call) chat.Result {
	var a struct {
		Folder, File, Pattern string
		Offset                int64
	}
	res := chat.Result{CallID: c.ID}
	err := json.Unmarshal(c.Arguments, &a)
	switch {
	case err != nil:
		err = fmt.Errorf("the arguments are not as the tool describes them: %w", err)
	case c.Name == "list":
		res.Text, err = v.list(a.Folder)
	case c.Name == "read":
		res.Text, err = v.read(a.File, a.Offset)
	case c.Name == "search":
		res.Text, err = v.search(a.Pattern, a.Folder)
	case c.Name == "look":
		res.Text, res.Images, err = v.look(a.File)
	default:
		err = fmt.Errorf("there is no tool %q", c.Name)
	}
	if err != nil {
		// The place of the view on this machine is not for the model.
		res.Text, res.Failed = untrusted.Below(err).Error(), true
	}
	return res
}

// below reports whether a file is in a folder of the view.
func below(name, folder string) bool {
	folder = strings.Trim(strings.TrimPrefix(folder, "./"), "/")
	return folder == "" || folder == "." || name == folder || strings.HasPrefix(name, folder+"/")
}

func (v View) list(folder string) (string, error) {
	names, more, err := v.names(folder)
	if err != nil {
		return "", err
	}
	if len(names) == 0 {
		return "", fmt.Errorf("there is no file in %q", folder)
	}
	if more {
		names = append(names, "[and more: list a folder of these]")
	}
	return strings.Join(names, "\n"), nil
}

// names returns the files of a folder, at most maxNames.
func (v View) names(folder string) (names []string, more bool, err error) {
	all, more, err := untrusted.List(string(v), 100*maxNames)
	if err != nil {
		return nil, false, err
	}
	for _, n := range all {
		if !below(n, folder) {
			continue
		}
		if len(names) == maxNames {
			return names, true, nil
		}
		names = append(names, n)
	}
	return names, more, nil
}

func (v View) read(name string, offset int64) (string, error) {
	f, err := untrusted.Open(string(v), strings.TrimPrefix(name, "./"), maxFile)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if offset < 0 || (offset >= info.Size() && info.Size() > 0) {
		return "", fmt.Errorf("the file has %d bytes", info.Size())
	}
	b := make([]byte, min(maxRead, info.Size()-offset))
	n, err := f.ReadAt(b, offset)
	if n < len(b) && err != nil {
		return "", err
	}
	if bytes.IndexByte(b, 0) >= 0 {
		return "", errors.New("it is not a text file")
	}
	end := offset + int64(n)
	text := strings.ToValidUTF8(string(b), "�")
	if end < info.Size() {
		text += fmt.Sprintf("\n[%d of %d bytes follow: read on with offset %d]", info.Size()-end, info.Size(), end)
	}
	return text, nil
}

func (v View) search(pattern, folder string) (string, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return "", err
	}
	names, more, err := v.names(folder)
	if err != nil {
		return "", err
	}
	var found []string
	for _, name := range names {
		number := 0
		cut, err := untrusted.Lines(string(v), name, 1<<20, maxSearch, func(line []byte) {
			number++
			if len(found) < maxMatches && utf8.Valid(line) && re.Match(line) {
				found = append(found, fmt.Sprintf("%s:%d: %s", name, number, output.First(string(line), maxMatch)))
			}
		})
		more = more || cut || err != nil // a link or a device is not searched
		if len(found) == maxMatches {
			found = append(found, fmt.Sprintf("[only the first %d]", maxMatches))
			break
		}
	}
	if len(found) == 0 {
		found = []string{"nothing found"}
	}
	if more {
		found = append(found, "[some files or lines were too large, too many or no plain files, and were not searched]")
	}
	return strings.Join(found, "\n"), nil
}

func (v View) look(name string) (string, []chat.Image, error) {
	b, err := untrusted.Read(string(v), strings.TrimPrefix(name, "./"), maxPicture)
	if err != nil {
		return "", nil, err
	}
	p, err := Fit(b)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("%s, %d × %d pixels, shown with %d × %d", name, p.Was.X, p.Was.Y, p.Is.X, p.Is.Y), []chat.Image{{MediaType: p.MediaType, Data: p.Data}}, nil
}
