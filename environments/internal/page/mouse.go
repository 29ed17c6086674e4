package page

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"
)

func byPlace() []Action {
	place := []Parameter{xParameter, yParameter}
	button := []Parameter{xParameter, yParameter, buttonChoice}
	event := func(kind string) func(context.Context, *Browser, *arguments) error {
		return page(func(ctx context.Context, b *Browser, t *tab, in *arguments) error {
			at, err := b.inside(in.X, in.Y)
			if err != nil {
				return err
			}
			at.button = in.Button
			return b.mouse(ctx, t, kind, at)
		})
	}
	click := func(times int) func(context.Context, *Browser, *arguments) error {
		return page(func(ctx context.Context, b *Browser, t *tab, in *arguments) error {
			at, err := b.inside(in.X, in.Y)
			if err != nil {
				return err
			}
			at.button = in.Button
			return b.click(ctx, t, at, times)
		})
	}
	file := Parameter{Name: "file", Type: "strings", Doc: "Path in the sandbox, or several."}
	return append([]Action{
		{"mouse_move", "coord", "Moves the mouse.", place, event("mouseMoved")},
		{"mouse_up", "coord", "Releases a button of the mouse.", button, event("mouseReleased")},
		{"mouse_down", "coord", "Presses a button of the mouse.", button, event("mousePressed")},
		{"mouse_click", "coord", "Clicks at a place.", button, click(1)},
		{"mouse_dblclick", "coord", "Clicks twice at a place.", button, click(2)},
		{
			"mouse_drag_and_drop", "coord", "Drags from one place to another.",
			[]Parameter{number("from_x", ""), number("from_y", ""), number("to_x", ""), number("to_y", "")},
			page(dragPlaces),
		},
		{"mouse_upload_file", "coord", "Clicks at a place that asks for files, and chooses files of the sandbox.", append(place[:2:2], file), page(chooseFile)},
	}, byKeyboard()...)
}

func dragPlaces(ctx context.Context, b *Browser, t *tab, in *arguments) error {
	from, err := b.inside(in.FromX, in.FromY)
	if err != nil {
		return err
	}
	to, err := b.inside(in.ToX, in.ToY)
	if err != nil {
		return err
	}
	return b.dragTo(ctx, t, from, to)
}

func byKeyboard() []Action {
	one, several := text("key", "Such as Shift or a."), text("key", "Keys joined by +, such as Enter or Control+a.")
	holds := func(down bool) func(context.Context, *Browser, *arguments) error {
		return page(func(ctx context.Context, b *Browser, t *tab, in *arguments) error {
			return b.hold(ctx, t, in.Key, down)
		})
	}
	return []Action{
		{"keyboard_down", "coord", "Presses a key and holds it.", []Parameter{one}, holds(true)},
		{"keyboard_up", "coord", "Releases a key.", []Parameter{one}, holds(false)},
		{"keyboard_press", "coord", "Presses keys.", []Parameter{several}, page(func(ctx context.Context, b *Browser, t *tab, in *arguments) error {
			return b.press(ctx, t, in.Key)
		})},
		{"keyboard_type", "coord", "Types a text, key by key.", []Parameter{text("text", "The text.")}, page(typeText)},
		{
			"keyboard_insert_text", "coord", "Inserts a text where the focus is, without keys.",
			[]Parameter{text("text", "The text.")},
			page(func(ctx context.Context, b *Browser, t *tab, in *arguments) error {
				return b.do(ctx, t, "Input.insertText", object{"text": in.Text}, nil)
			}),
		},
	}
}

// inside refuses a place outside of the viewport.
func (b *Browser) inside(x, y float64) (mouse, error) {
	if x < 0 || y < 0 || x >= float64(b.set.Width) || y >= float64(b.set.Height) {
		return mouse{}, refuse("ValueError", "(%g, %g) is not in the viewport of %d × %d", x, y, b.set.Width, b.set.Height)
	}
	return mouse{x: x, y: y}, nil
}

// mouse is a place in the viewport, and what the mouse does there.
type mouse struct {
	x, y   float64
	button string // empty: none, or the left one for clicks
	count  int    // of clicks so far, with this one
	held   int    // modifiers
	drags  bool   // the left button is held
}

// pressed are the buttons as the protocol counts them.
var pressed = map[string]int{"left": 1, "right": 2, "middle": 4}

// mouse sends an event of the mouse.
func (b *Browser) mouse(ctx context.Context, t *tab, kind string, m mouse) error {
	p := object{"type": kind, "x": m.x, "y": m.y, "modifiers": m.held | b.holding()}
	switch {
	case kind != "mouseMoved":
		m.button = cmp.Or(m.button, "left")
		p["button"], p["clickCount"] = m.button, max(1, m.count)
		if kind == "mousePressed" {
			p["buttons"] = pressed[m.button]
		}
	case m.drags:
		p["button"], p["buttons"] = "left", 1
	}
	return b.do(ctx, t, "Input.dispatchMouseEvent", p, nil)
}

// click clicks that many times at a place.
func (b *Browser) click(ctx context.Context, t *tab, m mouse, times int) error {
	if err := b.mouse(ctx, t, "mouseMoved", m); err != nil {
		return err
	}
	for m.count = 1; m.count <= times; m.count++ {
		if err := b.mouse(ctx, t, "mousePressed", m); err != nil {
			return err
		}
		if err := b.mouse(ctx, t, "mouseReleased", m); err != nil {
			return err
		}
	}
	return b.loaded(ctx)
}

func (b *Browser) clickOn(ctx context.Context, t *tab, in *arguments, times int) error {
	held := 0
	for _, m := range in.Modifiers {
		bit, ok := modifierBits[m]
		if !ok {
			return refuse("ValueError", "%q is not a modifier: use Alt, Control, ControlOrMeta, Meta or Shift", cut(m))
		}
		held |= bit
	}
	var option bool
	if err := b.call(ctx, t, in.BID, function{text: "function () { return this.tagName === 'OPTION'; }"}, &option); err != nil {
		return err
	}
	if option { // it is in a list that the browser does not show
		return refuse("ValueError", "the element with bid %q is an option: use select_option on its select element", in.BID)
	}
	at, err := b.pointOf(ctx, t, in.BID)
	if err != nil {
		return err
	}
	at.button, at.held = in.Button, held
	return b.click(ctx, t, at, times)
}

func scroll(ctx context.Context, b *Browser, t *tab, in *arguments) error {
	x, y := float64(b.set.Width)/2, float64(b.set.Height)/2
	err := b.do(ctx, t, "Input.dispatchMouseEvent", object{"type": "mouseWheel", "x": x, "y": y, "deltaX": in.DX, "deltaY": in.DY}, nil)
	return errors.Join(err, sleep(ctx, 50*time.Millisecond)) // the next frame shows it
}

// dragSteps is how many moves a drag has.
const dragSteps = 5

// dragTo drags with the left button. If the page drags data, as HTML has it, the
// data is dropped.
func (b *Browser) dragTo(ctx context.Context, t *tab, from, to mouse) (err error) {
	dragged := make(chan json.RawMessage, 1)
	b.mu.Lock()
	t.drag = dragged
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		t.drag = nil
		b.mu.Unlock()
		err = errors.Join(err, b.do(ctx, t, "Input.setInterceptDrags", object{"enabled": false}, nil))
	}()
	if err = b.do(ctx, t, "Input.setInterceptDrags", object{"enabled": true}, nil); err != nil {
		return err
	}
	if err = b.mouse(ctx, t, "mouseMoved", from); err != nil {
		return err
	}
	if err = b.mouse(ctx, t, "mousePressed", from); err != nil {
		return err
	}
	for i := 1; i <= dragSteps; i++ {
		share := float64(i) / dragSteps
		if err = b.mouse(ctx, t, "mouseMoved", mouse{x: from.x + (to.x-from.x)*share, y: from.y + (to.y-from.y)*share, drags: true}); err != nil {
			return err
		}
	}
	select {
	case data := <-dragged:
		for _, kind := range []string{"dragEnter", "dragOver", "drop"} {
			if err = b.do(ctx, t, "Input.dispatchDragEvent", object{"type": kind, "x": to.x, "y": to.y, "data": data}, nil); err != nil {
				return err
			}
		}
	case <-time.After(50 * time.Millisecond): // the page follows the mouse itself
	}
	return b.mouse(ctx, t, "mouseReleased", to)
}

// chooseFile clicks, and gives the file chooser that opens its files.
func chooseFile(ctx context.Context, b *Browser, t *tab, in *arguments) error {
	at, err := b.inside(in.X, in.Y)
	if err != nil {
		return err
	}
	opened := make(chan json.RawMessage, 1)
	b.mu.Lock()
	t.chooser = opened
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		t.chooser = nil
		b.mu.Unlock()
	}()
	if err := b.click(ctx, t, at, 1); err != nil {
		return err
	}
	select {
	case text := <-opened:
		var v struct {
			Backend int64  `json:"backendNodeId"`
			Mode    string `json:"mode"`
		}
		if err := json.Unmarshal(text, &v); err != nil {
			return err
		}
		if v.Mode != "selectMultiple" && len(in.File) > 1 {
			return refuse("ValueError", "the page takes one file")
		}
		return b.do(ctx, t, "DOM.setFileInputFiles", object{"files": in.File, "backendNodeId": v.Backend}, nil)
	case <-time.After(b.set.ActionTimeout):
		return refuse("TimeoutError", "the page did not ask for a file")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
