package webui

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
	taskfolder "github.com/berth-eval/berth/tasks/internal/folder"
)

// Bounds of a task.
const (
	maxFiles       = 5000
	maxFile        = 64 << 20 // bytes
	maxText        = 1 << 20  // bytes of tasks.md
	maxActionsFile = 1 << 20  // bytes
	maxPicture     = 10 << 20 // bytes
	maxPictures    = 100
)

func within(p, dir string) bool { return strings.HasPrefix(p, dir+"/") }

// scan lists the files, and returns a digest of their names and contents. Hidden
// ones, and what Python leaves, are not part of a task.
func (b *builder) scan(ctx context.Context) (string, error) {
	all, err := taskfolder.List(ctx, b.root, ".")
	if err != nil {
		return "", err
	}
	hidden := func(p string) bool {
		return slices.ContainsFunc(strings.Split(p, "/"), func(name string) bool { return strings.HasPrefix(name, ".") || name == "__pycache__" })
	}
	b.problems = slices.DeleteFunc(all.Problems, func(p task.Problem) bool { return hidden(p.File) })
	h := sha256.New()
	for _, n := range all.Below(taskfolder.Whole) {
		switch {
		case hidden(n.Path) || n.Mode.IsDir():
			continue
		case n.Link != "":
			b.bad(n.Path, 0, "Not a regular file", "A task has files and folders only. Copy the file instead of linking to it.")
			continue
		case len(b.files) >= maxFiles:
			return "", fmt.Errorf("the task has more than %d files", maxFiles)
		case n.Size > maxFile:
			b.bad(n.Path, 0, "File is too large", "It has %d bytes, at most %d are allowed.", n.Size, maxFile)
			continue
		}
		b.files = append(b.files, n)
		sum, err := all.Sum(ctx, n.Path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s\x00%s\n", n.Path, sum)
	}
	b.problems = append(b.problems, all.Contents...)
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// find returns a file of the task; nil: there is none.
func (b *builder) find(p string) *taskfolder.Node {
	i := slices.IndexFunc(b.files, func(n taskfolder.Node) bool { return n.Path == p })
	if i < 0 {
		return nil
	}
	return &b.files[i]
}

// read returns a file of at most limit bytes.
func (b *builder) read(p string, limit int64) ([]byte, error) {
	if b.find(p) == nil {
		return nil, fmt.Errorf("%s: %w", p, fs.ErrNotExist)
	}
	data, err := taskfolder.Read(b.root, p, limit)
	data, marked := taskfolder.Unmarked(p, data)
	if marked != nil {
		b.problems = append(b.problems, *marked)
	}
	return data, err
}

// pictureForm is a picture in Markdown.
var pictureForm = regexp.MustCompile(`!\[[^\]\n]*\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"\n]*")?\s*\)`)

var mediaTypes = map[string]string{".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp"}

// instruction returns the description as text and pictures, in their order. A
// picture elsewhere in the network stays text.
func (b *builder) instruction(text string) (parts []task.Part) {
	last := 0
	add := func(s string) {
		if strings.TrimSpace(s) != "" {
			parts = append(parts, task.Part{Text: s})
		}
	}
	for _, m := range pictureForm.FindAllStringSubmatchIndex(text, -1) {
		to := text[m[2]:m[3]]
		if strings.Contains(to, "://") || strings.HasPrefix(to, "data:") {
			continue
		}
		if name := b.picture(to, 1+strings.Count(text[:m[0]], "\n")); name != "" {
			add(text[last:m[0]])
			parts = append(parts, task.Part{Resource: name, MediaType: mediaTypes[strings.ToLower(path.Ext(name))]})
			last = m[1]
		}
	}
	add(text[last:])
	if len(parts) == 0 {
		b.bad(fileText, 0, "The description is empty", "%s says what the agent has to do.", fileText)
	}
	return parts
}

// picture adds a picture that the agent gets, and returns its name; empty: it is
// wrong, which is reported.
func (b *builder) picture(to string, line int) string {
	name := path.Clean(to)
	known := slices.ContainsFunc(b.t.Resources, func(r task.Resource) bool { return r.Name == name })
	switch f := b.find(name); {
	case known:
		return name
	case !filepath.IsLocal(name) || strings.Contains(name, `\`):
		b.bad(fileText, line, "Picture is outside of the task", "%q: write the path of a file in the task's folder.", to)
	case mediaTypes[strings.ToLower(path.Ext(name))] == "":
		b.bad(fileText, line, "Picture of an unknown type", "%q: pictures are .png, .jpg or .webp.", to)
	case f == nil:
		b.bad(fileText, line, "Picture is missing", "There is no file %q in the task's folder.", name)
	case within(name, dirSolution):
		b.bad(fileText, line, "Picture is part of the solution", "%q: move it to another folder.", name)
	case f.Size > maxPicture:
		b.bad(fileText, line, "Picture is too large", "%q has %d bytes, at most %d are allowed.", name, f.Size, maxPicture)
	case len(b.t.Resources) >= maxPictures:
		b.bad(fileText, line, "Too many pictures", "At most %d are allowed.", maxPictures)
	default:
		b.t.Resources = append(b.t.Resources, task.Resource{Name: name, Path: name, Audience: task.Public()})
		return name
	}
	return ""
}
