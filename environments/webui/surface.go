package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/environments/internal/page"
	"github.com/berth-eval/berth/environments/internal/surfaces"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// needsMemory is what a browser with a large page needs, in MiB.
const needsMemory = 1024

func newSurface() *surfaces.Kind { return &surfaces.Kind{Name: "webui", Ask: needs, Start: start} }

// open is one page that an agent rebuilds.
type open struct {
	browse func(context.Context, page.Settings) (browsing, error)
	spec   environment.SurfaceSpec
	config Config
	task   settings
	shell  *sandbox.Client
	root   *os.Root          // of the task's files; nil: there are none
	rest   fs.FS             // the target, and the other files of the task
	files  map[string]string // that the agent has written, by name
	begun  bool              // it was reset
	seen   environment.Observation
	frames surfaces.Frames
}

// The actions of an agent.
const (
	actRefresh = "refresh"
	writes     = "write_"
)

// kinds are the files that an agent writes, by the kind that is in the action's name.
var kinds = map[string]string{"html": fileHTML, "css": fileCSS, "javascript": fileJavaScript}

// kindNames are these kinds, in the order in which files are told.
var kindNames = []string{"html", "css", "javascript"}

// kindFiles is what the agent has written, as text.
const kindFiles = "files"

// The kinds of frames: after the page was loaded, and after each of its actions.
const (
	kindPage   = "page"
	kindAction = "action_%d"
)

var contentSchema = json.RawMessage(`{"type": "object", "properties": {"content": {"type": "string", "description": "The whole file."}}, "required": ["content"], "additionalProperties": false}`)

func needs(r environment.SurfaceRequest) (n environment.SurfaceNeeds, err error) {
	var c Config
	var s settings
	if err = read(r.Config, r.Settings, &c, &s); err != nil {
		return n, err
	}
	n = environment.SurfaceNeeds{MemoryMiB: needsMemory, Shell: true, Observations: []string{environment.KindText, kindFiles, kindPage}, Pictures: []string{kindPage}, Refusals: problems(&c, &s)}
	for i := range s.Actions {
		n.Observations = append(n.Observations, fmt.Sprintf(kindAction, i+1))
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		n.Actions = append(n.Actions, environment.Action{
			Name: writes + kind, Doc: fmt.Sprintf("Writes the file %s, in place of what it had. Shows the page then, and after each of its actions.", kinds[kind]), Schema: contentSchema,
		})
	}
	n.Actions = append(n.Actions, environment.Action{Name: actRefresh, Doc: "Opens the page again, and shows it then, and after each of its actions."})
	return n, nil
}

func start(_ context.Context, spec environment.SurfaceSpec) (_ surfaces.Open, err error) {
	o := &open{spec: spec, files: map[string]string{}, frames: surfaces.Frames{Folder: spec.Frames}}
	o.browse = o.start
	if err = read(spec.Config, spec.Settings, &o.config, &o.task); err != nil {
		return nil, err
	}
	folder := spec.Scratch // which is empty
	if spec.Files != "" && o.task.Page != "" {
		folder = filepath.Join(spec.Files, filepath.FromSlash(o.task.Page))
	}
	if o.root, err = os.OpenRoot(folder); err != nil { // nothing outside of it is served, whatever the links
		return nil, err
	}
	o.rest = o.root.FS()
	if o.shell, err = sandbox.Dial(spec.Shell); err != nil {
		return nil, errors.Join(err, o.root.Close())
	}
	return o, nil
}

// Reset implements surfaces.Open.
func (o *open) Reset(ctx context.Context, start environment.Start) (_ environment.Observation, err error) {
	if !o.begun || !o.task.Keep {
		if o.files, err = o.beginning(start.Seed); err != nil {
			return environment.Observation{}, err
		}
		o.seen = environment.Observation{Text: "Nothing is written yet: index.html is empty.\n"}
		if len(o.files) > 0 {
			err = o.look(ctx)
		}
		o.begun = err == nil
	}
	if err != nil {
		return environment.Observation{}, err
	}
	return o.Observe(ctx, start.Want)
}

// maxWritten bounds a file that the agent begins with, in bytes.
const maxWritten = 4 << 20

// beginning returns the files that the agent begins with in a repetition.
func (o *open) beginning(repetition int64) (map[string]string, error) {
	files := map[string]string{}
	if len(o.task.Start) == 0 {
		return files, nil
	}
	name := o.task.Start[(max(repetition, 1)-1)%int64(len(o.task.Start))]
	if name == "" {
		return files, nil
	}
	for _, file := range kinds {
		text, err := untrusted.Read(filepath.Join(o.spec.Files, filepath.FromSlash(name)), file, maxWritten)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("files to start from: %w", err)
		default:
			files[file] = string(text)
		}
	}
	return files, nil
}

// Act implements surfaces.Open.
func (o *open) Act(ctx context.Context, call environment.Call, want []string) (step environment.Step, err error) {
	kind, writing := strings.CutPrefix(call.Name, writes)
	switch name := kinds[kind]; {
	case writing && name != "":
		var in struct {
			Content *string `json:"content"`
		}
		if json.Unmarshal(call.Arguments, &in) != nil || in.Content == nil {
			step.Error = fmt.Sprintf("ValueError: %s needs the argument content, the text of the file", call.Name)
			break
		}
		o.files = maps.Clone(o.files)
		o.files[name] = *in.Content
		err = o.look(ctx)
	case call.Name == actRefresh:
		err = o.look(ctx)
	default:
		step.Error = fmt.Sprintf("ValueError: there is no action %q", output.First(call.Name, 200))
	}
	if err == nil {
		step.Observation, err = o.Observe(ctx, want)
	}
	return step, err
}

// Bounds of the pictures of an observation, in bytes: all of them together, and how
// many of these may be lossless.
const (
	maxPictures = 18 << 20
	maxLossless = 12 << 20
	quality     = 80
)

// look opens the page, and sees it and what its actions make of it.
func (o *open) look(ctx context.Context) error {
	var text strings.Builder
	for _, kind := range kindNames {
		name := kinds[kind]
		if content, ok := o.files[name]; ok {
			fmt.Fprintf(&text, "%s has %d bytes.\n", name, len(content))
		} else {
			fmt.Fprintf(&text, "%s is not written.\n", name)
		}
	}
	seen := environment.Observation{}
	total := 0
	err := o.visit(ctx, written{o.files, o.rest}, func(ctx context.Context, b *page.Browser, n int, failed error) error {
		what, kind := "The page after it was loaded", kindPage
		if n > 0 {
			what, kind = fmt.Sprintf("The page after action %d, %s", n, output.First(o.task.Actions[n-1].Name, 200)), fmt.Sprintf(kindAction, n)
		}
		var f environment.Frame
		if failed == nil {
			f, failed = picture(ctx, b, total)
		}
		if failed != nil {
			fmt.Fprintf(&text, "%s: there is no picture. %s\n", what, output.First(page.Failure(failed), maxFailure))
			return nil
		}
		total += len(f.Data)
		f.Name = kind
		seen.Frames = append(seen.Frames, f)
		fmt.Fprintf(&text, "%s: picture %s.\n", what, kind)
		return nil
	})
	if err != nil {
		return err
	}
	seen.Text = strings.ToValidUTF8(text.String(), "\ufffd")
	o.seen = seen
	return nil
}

// listing returns the files that are written, each in a fence.
func (o *open) listing() string {
	var b strings.Builder
	for _, kind := range kindNames {
		if text, ok := o.files[kinds[kind]]; ok {
			fmt.Fprintf(&b, "```%s\n%s\n```\n\n", kind, strings.TrimSuffix(text, "\n"))
		}
	}
	return strings.TrimRight(strings.ToValidUTF8(b.String(), "\ufffd"), "\n")
}

// picture takes a picture of the page, which is a JPEG if there is little room.
func picture(ctx context.Context, b *page.Browser, total int) (f environment.Frame, err error) {
	f.MediaType = "image/png"
	if f.Data, err = b.Picture(ctx, 0); err == nil && total+len(f.Data) > maxLossless {
		f.MediaType = "image/jpeg"
		f.Data, err = b.Picture(ctx, quality)
	}
	if err == nil && (total+len(f.Data) > maxPictures || len(f.Data) == 0) {
		err = fmt.Errorf("the pictures have more than %d bytes", maxPictures)
	}
	return f, err
}

// Observe implements surfaces.Open: it shows what was seen last. The core removes the
// files of large frames when it has read them, so they are written each time.
func (o *open) Observe(_ context.Context, want []string) (out environment.Observation, err error) {
	wanted := func(kind string) bool { return len(want) == 0 || slices.Contains(want, kind) }
	if wanted(environment.KindText) {
		out.Text = o.seen.Text
	}
	if wanted(kindFiles) {
		if out.JSON, err = json.Marshal(map[string]string{kindFiles: o.listing()}); err != nil {
			return out, err
		}
	}
	for _, f := range o.seen.Frames {
		if !wanted(f.Name) {
			continue
		}
		if err = o.frames.Put(&f); err != nil {
			return out, err
		}
		out.Frames = append(out.Frames, f)
	}
	return out, nil
}

// Close implements surfaces.Open.
func (o *open) Close(context.Context) error {
	return errors.Join(o.shell.Close(), o.root.Close())
}
