package page

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/berth-eval/berth/environments/internal/cdp"
)

func byBID() []Action {
	value := text("value", "The text.")
	return []Action{
		{"scroll", "bid", "Scrolls the page by pixels.", []Parameter{number("delta_x", "To the right."), number("delta_y", "Down.")}, page(scroll)},
		{"fill", "bid", "Replaces the content of a field.", []Parameter{bidParameter, value}, page(fill)},
		{
			"select_option", "bid", "Chooses options of a select element, by value or label.",
			[]Parameter{bidParameter, {Name: "options", Type: "strings", Doc: "One or several."}},
			page(selectOption),
		},
		{"click", "bid", "Clicks on an element.", []Parameter{bidParameter, buttonChoice, modifiers}, page(func(ctx context.Context, b *Browser, t *tab, in *arguments) error {
			return b.clickOn(ctx, t, in, 1)
		})},
		{"dblclick", "bid", "Clicks twice on an element.", []Parameter{bidParameter, buttonChoice, modifiers}, page(func(ctx context.Context, b *Browser, t *tab, in *arguments) error {
			return b.clickOn(ctx, t, in, 2)
		})},
		{"hover", "bid", "Moves the mouse over an element.", []Parameter{bidParameter}, page(func(ctx context.Context, b *Browser, t *tab, in *arguments) error {
			at, err := b.pointOf(ctx, t, in.BID)
			if err != nil {
				return err
			}
			return b.mouse(ctx, t, "mouseMoved", at)
		})},
		{
			"press", "bid", "Presses keys while an element has the focus.",
			[]Parameter{bidParameter, text("key_comb", "Keys joined by +, such as Enter or Control+a.")},
			page(func(ctx context.Context, b *Browser, t *tab, in *arguments) error {
				if err := b.focusOn(ctx, t, in.BID); err != nil {
					return err
				}
				return b.press(ctx, t, in.KeyComb)
			}),
		},
		{"focus", "bid", "Gives an element the focus.", []Parameter{bidParameter}, page(func(ctx context.Context, b *Browser, t *tab, in *arguments) error {
			return b.focusOn(ctx, t, in.BID)
		})},
		{"clear", "bid", "Empties a field.", []Parameter{bidParameter}, page(func(ctx context.Context, b *Browser, t *tab, in *arguments) error {
			in.Value = ""
			return fill(ctx, b, t, in)
		})},
		{
			"drag_and_drop", "bid", "Drags an element onto another one.",
			[]Parameter{text("from_bid", "What is dragged."), text("to_bid", "Where it is dropped.")},
			page(func(ctx context.Context, b *Browser, t *tab, in *arguments) error {
				from, err := b.pointOf(ctx, t, in.From)
				if err != nil {
					return err
				}
				to, err := b.pointOf(ctx, t, in.To)
				if err != nil {
					return err
				}
				return b.dragTo(ctx, t, from, to)
			}),
		},
		{
			"upload_file", "bid", "Chooses files of the sandbox in a file field.",
			[]Parameter{bidParameter, {Name: "file", Type: "strings", Doc: "Path in the sandbox, or several."}},
			page(func(ctx context.Context, b *Browser, t *tab, in *arguments) error {
				id, err := b.node(t, in.BID)
				if err != nil {
					return err
				}
				return b.known(b.do(ctx, t, "DOM.setFileInputFiles", object{"files": in.File, "backendNodeId": id}, nil), in.BID)
			}),
		},
	}
}

// known turns the browser's refusal of a node into one that names the bid.
func (b *Browser) known(err error, bid string) error {
	if e, ok := errors.AsType[*cdp.Error](err); ok {
		if e.Message == "No node with given id found" || e.Message == "Could not find node with given id" || e.Message == "No node found for given backend id" {
			return refuse("ValueError", "there is no element with bid %q on the page", bid)
		}
	}
	return err
}

// function is JavaScript that is called with an element as this.
type function struct {
	text string
	args []any
}

// call calls a function on an element, and decodes what it returns into out.
func (b *Browser) call(ctx context.Context, t *tab, bid string, f function, out any) error {
	id, err := b.node(t, bid)
	if err != nil {
		return err
	}
	var resolved struct {
		Object remote `json:"object"`
	}
	if err = b.do(ctx, t, "DOM.resolveNode", object{"backendNodeId": id}, &resolved); err != nil {
		return b.known(err, bid)
	}
	list := []object{}
	for _, a := range f.args {
		list = append(list, object{"value": a})
	}
	r, err := b.run(ctx, t, b.do, "Runtime.callFunctionOn", object{
		"objectId": resolved.Object.ID, "functionDeclaration": f.text, "arguments": list, "returnByValue": true, "awaitPromise": true,
	})
	if err != nil || len(r.Value) == 0 {
		return err
	}
	return json.Unmarshal(r.Value, out)
}

// ready says why an element cannot be acted on; empty: it can. It scrolls to it.
// In its own frame, what is at its center has to be the element, or belong to it.
const readyFunction = `function () {
  const e = this.nodeType === 1 ? this : this.parentElement;
  if (!e || !e.isConnected) return 'is not on the page any more';
  e.scrollIntoView({block: 'nearest', inline: 'nearest', behavior: 'instant'});
  const r = e.getBoundingClientRect(), style = getComputedStyle(e);
  if (r.width === 0 || r.height === 0 || style.visibility !== 'visible') return 'is not visible';
  if (e.disabled || e.closest('[disabled], [inert]')) return 'is disabled';
  const view = e.ownerDocument.defaultView;
  const x = (Math.max(r.left, 0) + Math.min(r.right, view.innerWidth)) / 2, y = (Math.max(r.top, 0) + Math.min(r.bottom, view.innerHeight)) / 2;
  let hit = e.getRootNode().elementFromPoint(x, y);
  if (!hit) return 'is not in the viewport';
  const label = e.labels && [...e.labels].some(l => l.contains(hit));
  for (let at = hit; at; at = at.parentNode || at.host) if (at === e) return '';
  if (label || hit.contains(e) && getComputedStyle(e).display === 'contents') return '';
  const name = hit.tagName.toLowerCase() + (hit.id ? '#' + hit.id : '');
  return 'is covered by ' + name.slice(0, 100);
}`

// pointOf waits until an element can be acted on, and returns its center in the
// viewport.
func (b *Browser) pointOf(ctx context.Context, t *tab, bid string) (at mouse, err error) {
	id, err := b.node(t, bid)
	if err != nil {
		return at, err
	}
	var why string
	for end := time.Now().Add(b.set.ActionTimeout); ; {
		if err = b.call(ctx, t, bid, function{text: readyFunction}, &why); err != nil {
			return at, err
		}
		if why == "" {
			break
		}
		if time.Now().After(end) {
			return at, refuse("TimeoutError", "the element with bid %q %s", bid, why)
		}
		if err = sleep(ctx, 100*time.Millisecond); err != nil {
			return at, err
		}
	}
	var got struct {
		Quads [][]float64 `json:"quads"`
	}
	if err = b.do(ctx, t, "DOM.getContentQuads", object{"backendNodeId": id}, &got); err != nil {
		return at, b.known(err, bid)
	}
	for _, q := range got.Quads {
		if len(q) != 8 {
			continue
		}
		left, right := max(min(q[0], q[2], q[4], q[6]), 0), min(max(q[0], q[2], q[4], q[6]), float64(b.set.Width))
		top, bottom := max(min(q[1], q[3], q[5], q[7]), 0), min(max(q[1], q[3], q[5], q[7]), float64(b.set.Height))
		if right > left && bottom > top {
			return mouse{x: (left + right) / 2, y: (top + bottom) / 2}, nil
		}
	}
	return at, refuse("TimeoutError", "the element with bid %q is not in the viewport", bid)
}

func (b *Browser) focusOn(ctx context.Context, t *tab, bid string) error {
	id, err := b.node(t, bid)
	if err != nil {
		return err
	}
	err = b.known(b.do(ctx, t, "DOM.focus", object{"backendNodeId": id}, nil), bid)
	if e, ok := errors.AsType[*cdp.Error](err); ok {
		return refuse("ValueError", "the element with bid %q cannot have the focus: %s", bid, e.Message)
	}
	return err
}

// fillFunction prepares a field: it selects what is in it, or sets the value of a
// field that cannot be typed into. It returns what is left to do.
const fillFunction = `function (value) {
  const e = this, tag = e.tagName;
  const typed = ['text', 'search', 'email', 'password', 'tel', 'url', 'number', ''];
  if (tag === 'INPUT' && !typed.includes(e.type)) {
    if (['checkbox', 'radio', 'file', 'button', 'submit', 'reset', 'image'].includes(e.type)) return 'is an input of type ' + e.type + ', which cannot be filled';
  } else if (tag !== 'INPUT' && tag !== 'TEXTAREA' && !e.isContentEditable) return 'is not a field';
  if (e.disabled) return 'is disabled';
  if (e.readOnly) return 'is read-only';
  e.scrollIntoView({block: 'nearest', inline: 'nearest', behavior: 'instant'});
  e.focus();
  if (tag === 'INPUT' && !typed.includes(e.type)) {
    const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
    set.call(e, value);
    if (e.value !== value) return 'does not take this value';
    e.dispatchEvent(new Event('input', {bubbles: true, composed: true}));
    e.dispatchEvent(new Event('change', {bubbles: true}));
    return 'set';
  }
  if (tag === 'INPUT' || tag === 'TEXTAREA') {
    e.select();
  } else {
    const range = e.ownerDocument.createRange(), selection = e.ownerDocument.defaultView.getSelection();
    range.selectNodeContents(e);
    selection.removeAllRanges();
    selection.addRange(range);
  }
  return '';
}`

func fill(ctx context.Context, b *Browser, t *tab, in *arguments) error {
	var why string
	if err := b.call(ctx, t, in.BID, function{fillFunction, []any{in.Value}}, &why); err != nil {
		return err
	}
	switch {
	case why == "set":
		return nil
	case why != "":
		return refuse("ValueError", "the element with bid %q %s", in.BID, why)
	case in.Value == "":
		return b.press(ctx, t, "Delete")
	}
	return b.do(ctx, t, "Input.insertText", object{"text": in.Value}, nil)
}

const selectFunction = `function (wanted) {
  if (this.tagName !== 'SELECT') return 'is not a select element';
  if (this.disabled) return 'is disabled';
  if (!this.multiple && wanted.length !== 1) return 'takes one option';
  const chosen = [];
  for (const w of wanted) {
    const o = [...this.options].find(o => o.value === w) || [...this.options].find(o => o.label.trim() === w.trim() || o.text.trim() === w.trim());
    if (!o) return 'has no option ' + JSON.stringify(w).slice(0, 100);
    if (o.disabled) return 'has the option ' + JSON.stringify(w).slice(0, 100) + ', which is disabled';
    chosen.push(o);
  }
  this.focus();
  for (const o of this.options) o.selected = chosen.includes(o);
  this.dispatchEvent(new Event('input', {bubbles: true, composed: true}));
  this.dispatchEvent(new Event('change', {bubbles: true}));
  return '';
}`

func selectOption(ctx context.Context, b *Browser, t *tab, in *arguments) error {
	var why string
	if err := b.call(ctx, t, in.BID, function{selectFunction, []any{in.Options}}, &why); err != nil {
		return err
	}
	if why != "" {
		return refuse("ValueError", "the element with bid %q %s", in.BID, why)
	}
	return nil
}
