package main

import (
	"context"
	_ "embed" // the script
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-eval/berth/environments/internal/page"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/output"
)

// captured is what was captured of a page: a state after it was loaded, and one
// after each of its actions. The verifier that measures pages reads it.
type captured struct {
	Version int               `json:"version"`
	States  []json.RawMessage `json:"states"`
}

// version is that of captured.
const version = 1

// state is one that has no elements, because the action could not be done.
type state struct {
	Action string `json:"action,omitempty"`
	Failed string `json:"failed,omitempty"`
}

// Bounds of a capture.
const (
	maxElements = 10_000           // of a state
	maxPage     = 30 << 20         // bytes of a page
	idsOfState  = 10_000_000       // more than a state has elements
	scriptTime  = 20 * time.Second // of reading the page
	maxFailure  = 1000             // bytes
)

//go:embed capture.js
var captureScript string

// styles are the computed properties that are captured.
var styles = []string{
	"color", "background", "background-color", "background-image", "background-repeat", "background-size", "text-shadow", "box-shadow",
	"border-top-color", "border-top-width", "border-top-style", "border-right-color", "border-right-width", "border-right-style",
	"border-bottom-color", "border-bottom-width", "border-bottom-style", "border-left-color", "border-left-width", "border-left-style",
	"border-top-left-radius", "border-top-right-radius", "border-bottom-left-radius", "border-bottom-right-radius",
	"outline-style", "outline-width", "outline-color", "font-family", "font-size", "font-style", "font-weight",
	"height", "width", "tab-size", "letter-spacing", "display",
}

// script returns the call that captures a state.
func script(n int, digests bool) (string, error) {
	names, err := json.Marshal(styles)
	return fmt.Sprintf("(%s)(%d, %t, %d, %s)", captureScript, n*idsOfState, digests, maxElements, names), err
}

// elements captures a page and its states. digests are only needed of the target:
// they say which elements an action leaves as they were.
func (o *open) elements(ctx context.Context, files fs.FS, digests bool) (c captured, err error) {
	c.Version = version
	size := 0
	err = o.visit(ctx, files, func(ctx context.Context, b *page.Browser, n int, failed error) error {
		s := state{}
		if n > 0 {
			s.Action = o.task.Actions[n-1].Name
		}
		var text string
		if failed == nil {
			var call string
			if call, failed = script(n, digests); failed == nil {
				failed = b.Inside(ctx, call, scriptTime, &text)
			}
		}
		if size += len(text); failed == nil && size > maxPage {
			failed = fmt.Errorf("more than %d bytes were captured of the page", maxPage)
		}
		if failed != nil {
			text = "{}"
			s.Failed = output.First(page.Failure(failed), maxFailure)
		}
		joined, broken := join(s, text)
		c.States = append(c.States, joined)
		return broken
	})
	return c, err
}

// join adds the members of a state to those of an object.
func join(s state, object string) (json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(object), &all); err != nil {
		return nil, err
	}
	own, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(own, &all)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// The captures. Each has the time of a call, and the target's comes first: what an
// agent's page does to the machine while it is captured does not reach it.
const (
	captureTarget = "target"
	captureResult = "result"
	fileElements  = "elements.json"
)

// Capture implements surfaces.Open.
func (o *open) Capture(ctx context.Context, c environment.Capture) (names []string, err error) {
	switch {
	case c.Name != captureTarget && c.Name != captureResult:
		return nil, fmt.Errorf("%w: capture %s: there are %s and %s", fault.ErrInvalid, c.Name, captureTarget, captureResult)
	case len(c.Settings) > 0 && string(c.Settings) != "{}" && string(c.Settings) != "null":
		return nil, fmt.Errorf("%w: capture %s: it has no settings", fault.ErrInvalid, c.Name)
	case o.task.Page == "":
		return nil, fmt.Errorf("%w: capture %s: the task has no page that could be the target", fault.ErrInvalid, c.Name)
	}
	files, kept := o.rest, map[string][]byte{}
	if c.Name == captureResult {
		files = written{o.files, o.rest}
		for name, text := range o.files {
			kept[name] = []byte(text)
		}
	}
	all, err := o.elements(ctx, files, c.Name == captureTarget)
	if err != nil {
		return nil, fmt.Errorf("capture %s: %w", c.Name, err)
	}
	if kept[fileElements], err = json.Marshal(all); err != nil {
		return nil, err
	}
	for name, text := range kept {
		if err = os.WriteFile(filepath.Join(c.Folder, name), text, 0o600); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}
